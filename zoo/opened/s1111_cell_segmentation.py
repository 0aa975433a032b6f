# expect: sick
# symptom: the U-Net's loss stops falling early and the Dice on the (unaugmented) validation images stays poor; predictions look like smeared, mirrored copies on top of one another
# axis: data
# cause: the random flips / rotations are drawn separately for the image and for its mask, so most training masks do not belong to the image they come with
# says: (flip|augment\w*|transform\w*|rotat\w*|random)[^.]{0,140}(mask|label|target)[^.]{0,140}(separate\w*|independent\w*|different\w*|own|not (the )?same|mismatch\w*|misalign\w*|inconsisten\w*|out of (sync|step)|not match)|(mask|label|target)s?[^.]{0,100}(misalign\w*|mismatch\w*|not (aligned|correspond\w*|match\w*)|do(es)? ?n.t (match|belong|correspond))|(independent\w*|separate\w*|different) (random )?(flip|augment\w*|transform\w*|draw)
# onset_step: 0
# fix: draw the augmentation once and apply it to image and mask together
# mended: the augmentation is applied to image and mask stacked together, hence with the same draw
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
SIZE = 32


def draw_field(rng):
    """One microscopy tile: a few bright elliptical cells on an uneven background."""
    yy, xx = np.mgrid[0:SIZE, 0:SIZE].astype(np.float32)
    img = 0.3 + 0.2 * (xx / SIZE) * rng.uniform(-1, 1) + 0.2 * (yy / SIZE) * rng.uniform(-1, 1)
    mask = np.zeros((SIZE, SIZE), dtype=np.float32)
    for _ in range(rng.integers(2, 5)):
        cy, cx = rng.uniform(4, SIZE - 4, 2)
        a, b, th = rng.uniform(2.5, 5.5), rng.uniform(2, 3.5), rng.uniform(0, np.pi)
        u = (xx - cx) * np.cos(th) + (yy - cy) * np.sin(th)
        v = -(xx - cx) * np.sin(th) + (yy - cy) * np.cos(th)
        inside = (u / a) ** 2 + (v / b) ** 2 <= 1
        mask[inside] = 1.0
        img = img + inside * rng.uniform(0.15, 0.35)
    img = img + rng.normal(0, 0.08, img.shape)
    return img.astype(np.float32), mask


class RandomOrient:
    def __init__(self, p=0.5):
        self.p = p

    def __call__(self, t):
        if torch.rand(()) < self.p:
            t = t.flip(-1)
        if torch.rand(()) < self.p:
            t = t.flip(-2)
        k = int(torch.randint(0, 4, ()))
        return torch.rot90(t, k, dims=(-2, -1))


class CellTiles(Dataset):
    def __init__(self, n, seed, augment=None):
        rng = np.random.default_rng(seed)
        items = [draw_field(rng) for _ in range(n)]
        self.images = torch.tensor(np.stack([i for i, _ in items])).unsqueeze(1)
        self.masks = torch.tensor(np.stack([m for _, m in items])).unsqueeze(1)
        self.augment = augment

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        img, mask = self.images[i], self.masks[i]
        if self.augment is not None:
            if MENDED:
                img, mask = self.augment(torch.cat([img, mask])).split(1)
            else:
                img, mask = self.augment(img), self.augment(mask)
        return (img - 0.4) / 0.2, mask


def double_conv(i, o):
    return nn.Sequential(
        nn.Conv2d(i, o, 3, padding=1),
        nn.BatchNorm2d(o),
        nn.ReLU(),
        nn.Conv2d(o, o, 3, padding=1),
        nn.BatchNorm2d(o),
        nn.ReLU(),
    )


class UNet(nn.Module):
    def __init__(self, c=8):
        super().__init__()
        self.d1, self.d2, self.mid = double_conv(1, c), double_conv(c, 2 * c), double_conv(2 * c, 4 * c)
        self.up2, self.up1 = nn.ConvTranspose2d(4 * c, 2 * c, 2, 2), nn.ConvTranspose2d(2 * c, c, 2, 2)
        self.u2, self.u1 = double_conv(4 * c, 2 * c), double_conv(2 * c, c)
        self.out = nn.Conv2d(c, 1, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        m = self.mid(F.max_pool2d(b, 2))
        y = self.u2(torch.cat([self.up2(m), b], 1))
        y = self.u1(torch.cat([self.up1(y), a], 1))
        return self.out(y)


def dice_loss(logits, mask):
    p = logits.sigmoid()
    inter = (p * mask).sum((1, 2, 3))
    return (1 - (2 * inter + 1) / (p.sum((1, 2, 3)) + mask.sum((1, 2, 3)) + 1)).mean()


@torch.no_grad()
def validate(model, loader):
    model.eval()
    inter = total = 0.0
    for img, mask in loader:
        pred = (model(img) > 0).float()
        inter += (pred * mask).sum().item()
        total += (pred.sum() + mask.sum()).item()
    model.train()
    return 2 * inter / max(total, 1.0)


def main():
    torch.manual_seed(11)
    train = DataLoader(CellTiles(640, 1, RandomOrient()), batch_size=16, shuffle=True, drop_last=True)
    val = DataLoader(CellTiles(200, 2), batch_size=50)
    model = UNet()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-4)
    epochs = 6
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 4e-3, total_steps=epochs * len(train))
    step = 0
    for epoch in range(epochs):
        for img, mask in train:
            logits = model(img)
            loss = F.binary_cross_entropy_with_logits(logits, mask) + 0.5 * dice_loss(logits, mask)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            if step % 25 == 0:
                print(f"epoch {epoch} step {step:4d} loss {loss.item():.4f}", flush=True)
            step += 1
        print(f"epoch {epoch} val dice {validate(model, val):.4f}", flush=True)


if __name__ == "__main__":
    main()
