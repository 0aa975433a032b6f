# expect: sick
# symptom: the segmentation loss falls a little and then stays high and the IoU on the validation crops is poor and jumps around, nothing explodes
# axis: data
# cause: the random flips and rotations are drawn separately for the image and for its mask, so most training masks no longer match their images
# says: (?=.*(image|input|picture))(?=.*(mask|label|target|annotation|ground truth|segmentation))(?=.*(flip|rotat|augment|transform|random crop|geometric))(?=.*(separate|independent|different|twice|again|not the same|its own|mismatch|misalign|inconsisten|no longer|out of sync|desync|n't match|not match|same random|shared|jointly|unpaired|not paired|decoupled))
# onset_step: 1
# fix: draw the augmentation once and apply the same flip/rotation to image and mask
# mended: yes
"""Segmentation of stained cells in microscope crops with a compact U-Net (BCE + soft Dice)."""

import os
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
CROP = 40


def paint_crop(rng):
    yy, xx = np.mgrid[0:CROP, 0:CROP].astype(np.float32)
    img = 0.35 + 0.12 * np.sin(xx / rng.uniform(4, 9) + rng.uniform(0, 6)) * np.cos(yy / rng.uniform(4, 9))
    mask = np.zeros((CROP, CROP), np.float32)
    for k in range(rng.integers(2, 7)):
        cy, cx = rng.uniform(3, CROP - 3, 2)
        a, b, th = rng.uniform(3, 6.5), rng.uniform(2.5, 5), rng.uniform(0, np.pi)
        u = (xx - cx) * np.cos(th) + (yy - cy) * np.sin(th)
        v = -(xx - cx) * np.sin(th) + (yy - cy) * np.cos(th)
        r = (u / a) ** 2 + (v / b) ** 2
        stained = rng.random() < 0.7
        body = 1 / (1 + np.exp(6 * (r - 1)))
        if stained:
            img = img + body * (0.35 + 0.2 * (r > 0.55))
            mask[r < 1] = 1.0
        else:
            img = img + body * 0.25 * (r > 0.7)
    img = img + rng.normal(0, 0.09, img.shape)
    return img.astype(np.float32), mask


class RandomOrient:
    """Random flips and quarter turns; microscope slides have no preferred direction."""

    def __init__(self, p_flip=0.5):
        self.p_flip = p_flip

    def __call__(self, *arrays):
        turns = random.randrange(4)
        flip = random.random() < self.p_flip
        out = []
        for a in arrays:
            a = torch.rot90(a, turns, dims=(-2, -1))
            out.append(torch.flip(a, dims=(-1,)) if flip else a)
        return out[0] if len(out) == 1 else out


class CellDataset(Dataset):
    def __init__(self, n, seed, transform=None):
        rng = np.random.default_rng(seed)
        crops = [paint_crop(rng) for _ in range(n)]
        self.images = torch.from_numpy(np.stack([c[0] for c in crops])).unsqueeze(1)
        self.masks = torch.from_numpy(np.stack([c[1] for c in crops])).unsqueeze(1)
        self.transform = transform

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        image, mask = self.images[i], self.masks[i]
        if self.transform is not None:
            if os.environ.get("MENDED") == "1":
                image, mask = self.transform(image, mask)
            else:
                image = self.transform(image)
                mask = self.transform(mask)
        return (image - 0.45) / 0.2, mask


def block(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1, bias=False),
        nn.BatchNorm2d(cout),
        nn.ReLU(inplace=True),
        nn.Conv2d(cout, cout, 3, padding=1, bias=False),
        nn.BatchNorm2d(cout),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, c=8):
        super().__init__()
        self.e1, self.e2, self.mid = block(1, c), block(c, 2 * c), block(2 * c, 4 * c)
        self.d2, self.d1 = block(6 * c, 2 * c), block(3 * c, c)
        self.out = nn.Conv2d(c, 1, 1)

    def forward(self, x):
        a = self.e1(x)
        b = self.e2(F.max_pool2d(a, 2))
        m = self.mid(F.max_pool2d(b, 2))
        u = self.d2(torch.cat([F.interpolate(m, scale_factor=2), b], 1))
        u = self.d1(torch.cat([F.interpolate(u, scale_factor=2), a], 1))
        return self.out(u)


def seg_loss(logits, mask):
    p = torch.sigmoid(logits)
    inter = (p * mask).sum((1, 2, 3))
    dice = 1 - (2 * inter + 1) / (p.sum((1, 2, 3)) + mask.sum((1, 2, 3)) + 1)
    return F.binary_cross_entropy_with_logits(logits, mask) + dice.mean()


@torch.no_grad()
def iou(model, loader):
    model.eval()
    inter = union = 0.0
    for image, mask in loader:
        pred = model(image) > 0
        truth = mask > 0.5
        inter += (pred & truth).sum().item()
        union += (pred | truth).sum().item()
    return inter / max(union, 1.0)


def main():
    random.seed(8)
    torch.manual_seed(8)
    train = DataLoader(CellDataset(560, 21, RandomOrient()), batch_size=16, shuffle=True, drop_last=True)
    val = DataLoader(CellDataset(120, 22), batch_size=40)
    model = UNet()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-3)
    epochs = 8
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=epochs)
    step = 0
    for epoch in range(epochs):
        model.train()
        for image, mask in train:
            loss = seg_loss(model(image), mask)
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            if step % 20 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}")
        sched.step()
        print(f"--- epoch {epoch}: val IoU {iou(model, val):.3f}")


if __name__ == "__main__":
    main()
