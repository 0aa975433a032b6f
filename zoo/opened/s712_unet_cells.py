# expect: sick
# symptom: the training loss of the segmentation stalls at a high value although the images are easy, the validation IoU is poor and jumps about
# axis: data
# cause: the random flips are drawn separately for the image and for its mask, so three times out of four the mask does not belong to the image as fed
# says: (mask|label|target)s?[^.]{0,80}(different|separate|independent|own|not (the )?same|mis-?align|out of (sync|step|register)|mis-?match|not match|inconsisten|do(es)? ?n[o']t (belong|correspond|fit))|(flip|augment|transform)\w*[^.]{0,80}(independent|separate|different|mis-?align|not (the )?same|inconsisten|only the image|image (only|but not))|mis-?align\w*[^.]{0,40}(mask|label|target)|(image|input)s?[^.]{0,30}(mask|label|target)s?[^.]{0,30}(paired|wrong|disagree|mis-?align|differ|shuffl)
# onset_step: 1
# fix: draw the flips once per sample and apply them to both image and mask
# mended: with MENDED=1 the mask's transform uses the random state that the image's transform used
import logging
import os
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

MENDED = os.environ.get("MENDED") == "1"
logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
log = logging.getLogger("unet")


class RandomFlip:
    def __init__(self, p=0.5):
        self.p = p

    def __call__(self, a):
        if random.random() < self.p:
            a = a[..., ::-1]
        if random.random() < self.p:
            a = a[..., ::-1, :]
        return np.ascontiguousarray(a)


class CellDataset(Dataset):
    """Microscopy-like frames: bright irregular cells over an uneven background."""

    def __init__(self, n, size=24, transform=None, seed=0):
        rng = np.random.default_rng(seed)
        yy, xx = np.mgrid[0:size, 0:size]
        self.images = np.empty((n, 1, size, size), np.float32)
        self.masks = np.zeros((n, 1, size, size), np.float32)
        for i in range(n):
            for _ in range(rng.integers(1, 4)):
                cx, cy = rng.uniform(4, size - 4, 2)
                a, b = rng.uniform(2.5, 5.5, 2)
                th = rng.uniform(0, np.pi)
                u = (xx - cx) * np.cos(th) + (yy - cy) * np.sin(th)
                v = -(xx - cx) * np.sin(th) + (yy - cy) * np.cos(th)
                self.masks[i, 0][(u / a) ** 2 + (v / b) ** 2 < 1] = 1
            background = rng.uniform(-0.5, 0.5) * xx / size + rng.uniform(-0.5, 0.5) * yy / size
            self.images[i, 0] = self.masks[i, 0] * rng.uniform(0.8, 1.4) + background
            self.images[i, 0] += rng.normal(0, 0.35, (size, size))
        self.transform = transform

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        image, mask = self.images[i], self.masks[i]
        if self.transform is not None:
            state = random.getstate()
            image = self.transform(image)
            if MENDED:
                random.setstate(state)
            mask = self.transform(mask)
        return torch.from_numpy(image), torch.from_numpy(mask)


def double_conv(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1),
        nn.BatchNorm2d(cout),
        nn.ReLU(inplace=True),
        nn.Conv2d(cout, cout, 3, padding=1),
        nn.BatchNorm2d(cout),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, w=8):
        super().__init__()
        self.enc1, self.enc2, self.mid = double_conv(1, w), double_conv(w, 2 * w), double_conv(2 * w, 4 * w)
        self.up2 = nn.ConvTranspose2d(4 * w, 2 * w, 2, 2)
        self.dec2 = double_conv(4 * w, 2 * w)
        self.up1 = nn.ConvTranspose2d(2 * w, w, 2, 2)
        self.dec1 = double_conv(2 * w, w)
        self.out = nn.Conv2d(w, 1, 1)

    def forward(self, x):
        e1 = self.enc1(x)
        e2 = self.enc2(F.max_pool2d(e1, 2))
        m = self.mid(F.max_pool2d(e2, 2))
        d2 = self.dec2(torch.cat([self.up2(m), e2], 1))
        d1 = self.dec1(torch.cat([self.up1(d2), e1], 1))
        return self.out(d1)


def dice_loss(logits, target, eps=1.0):
    p = logits.sigmoid()
    inter = (p * target).sum((1, 2, 3))
    return (1 - (2 * inter + eps) / (p.sum((1, 2, 3)) + target.sum((1, 2, 3)) + eps)).mean()


@torch.no_grad()
def mean_iou(model, loader):
    model.eval()
    scores = []
    for x, m in loader:
        pred = model(x) > 0
        m = m > 0.5
        inter, union = (pred & m).sum((1, 2, 3)), (pred | m).sum((1, 2, 3))
        scores.append(inter / union.clamp(min=1))
    return torch.cat(scores).mean().item()


def main():
    torch.set_num_threads(1)
    random.seed(11)
    torch.manual_seed(11)
    train = DataLoader(
        CellDataset(512, transform=RandomFlip(), seed=1),
        32,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
        drop_last=True,
    )
    val = DataLoader(CellDataset(128, seed=2), 64)
    model = UNet()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    step = 0
    for epoch in range(16):
        model.train()
        for x, m in train:
            logits = model(x)
            loss = F.binary_cross_entropy_with_logits(logits, m) + dice_loss(logits, m)
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
        log.info("epoch %d step %d loss %.4f val IoU %.3f", epoch, step, loss.item(), mean_iou(model, val))


if __name__ == "__main__":
    main()
