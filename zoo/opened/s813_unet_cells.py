# expect: sick
# symptom: the segmentation loss jumps up at the fourth epoch and stays high, the Dice score stops improving
# axis: data
# cause: the random flips of the augmentation are applied to the image but not to its mask, so image and target no longer correspond
# says: (mask|label|target|annotation)s?\b[\s\S]{0,80}(not|n.t|never|without|un)[\s\S]{0,25}(flip|augment|transform|mirror|rotat)|(flip|augment|transform|mirror)\w*[\s\S]{0,80}(image|input)s?[\s\S]{0,25}(only|alone|but not|and not|without)|only (the )?(image|input)s?[\s\S]{0,40}(flip|augment|transform)|(image|input)s? and (the |its |their )?(mask|label|target)s?[\s\S]{0,50}(misalign|no longer|mismatch|not (match|align|correspond)|differ|out of)|(mis-?align|mismatch|different (random )?transform)\w*[\s\S]{0,40}(mask|label|target)
# onset_step: 121
# fix: apply the same flips to the mask
# mended: with MENDED=1 the mask is flipped together with the image
import os
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


class CellDataset(Dataset):
    """Fluorescence-like images with bright round cells on an uneven background."""

    def __init__(self, n, size=32, seed=0, train=True):
        rng = np.random.default_rng(seed)
        yy, xx = np.mgrid[0:size, 0:size]
        self.images = np.zeros((n, size, size), np.float32)
        self.masks = np.zeros((n, size, size), np.float32)
        for i in range(n):
            img = 0.25 * rng.standard_normal((size, size)) + 0.3 * xx / size
            for _ in range(rng.integers(1, 4)):
                cy, cx = rng.uniform(4, size - 4, 2)
                r = rng.uniform(2.5, 6)
                inside = (yy - cy) ** 2 + (xx - cx) ** 2 < r * r
                self.masks[i][inside] = 1.0
                img = img + rng.uniform(0.6, 1.0) * inside
            self.images[i] = img
        self.train = train
        self.augment = False

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        image, mask = self.images[i], self.masks[i]
        if self.train and self.augment:
            if random.random() < 0.5:
                image = np.flip(image, axis=1)
                if os.environ.get("MENDED") == "1":
                    mask = np.flip(mask, axis=1)
            if random.random() < 0.5:
                image = np.flip(image, axis=0)
                if os.environ.get("MENDED") == "1":
                    mask = np.flip(mask, axis=0)
        return torch.from_numpy(image.copy())[None], torch.from_numpy(mask.copy())[None]


def double_conv(a, b):
    return nn.Sequential(
        nn.Conv2d(a, b, 3, padding=1),
        nn.GroupNorm(4, b),
        nn.ReLU(),
        nn.Conv2d(b, b, 3, padding=1),
        nn.GroupNorm(4, b),
        nn.ReLU(),
    )


class UNet(nn.Module):
    def __init__(self, c=8):
        super().__init__()
        self.d1, self.d2, self.mid = double_conv(1, c), double_conv(c, 2 * c), double_conv(2 * c, 4 * c)
        self.up2 = nn.ConvTranspose2d(4 * c, 2 * c, 2, stride=2)
        self.u2 = double_conv(4 * c, 2 * c)
        self.up1 = nn.ConvTranspose2d(2 * c, c, 2, stride=2)
        self.u1 = double_conv(2 * c, c)
        self.out = nn.Conv2d(c, 1, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        m = self.mid(F.max_pool2d(b, 2))
        m = self.u2(torch.cat([self.up2(m), b], 1))
        return self.out(self.u1(torch.cat([self.up1(m), a], 1)))


def dice_loss(logits, target):
    p = torch.sigmoid(logits)
    inter = (p * target).sum((1, 2, 3))
    return (1 - (2 * inter + 1) / (p.sum((1, 2, 3)) + target.sum((1, 2, 3)) + 1)).mean()


class Trainer:
    def __init__(self, epochs=8, aug_from=3):
        self.epochs, self.aug_from = epochs, aug_from
        self.train_set = CellDataset(640, seed=1)
        self.val_set = CellDataset(96, seed=2, train=False)
        self.loader = DataLoader(self.train_set, batch_size=16, shuffle=True)
        self.model = UNet()
        self.opt = torch.optim.Adam(self.model.parameters(), lr=1e-2)
        self.step = 0

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        scores = []
        for x, y in DataLoader(self.val_set, batch_size=64):
            p = (self.model(x) > 0).float()
            scores += ((2 * (p * y).sum((1, 2, 3)) + 1) / (p.sum((1, 2, 3)) + y.sum((1, 2, 3)) + 1)).tolist()
        self.model.train()
        return sum(scores) / len(scores)

    def fit(self):
        for epoch in range(self.epochs):
            self.train_set.augment = epoch >= self.aug_from
            total = 0.0
            for x, y in self.loader:
                logits = self.model(x)
                loss = F.binary_cross_entropy_with_logits(logits, y) + dice_loss(logits, y)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                self.step += 1
                total += loss.item()
            print(f"epoch {epoch} step {self.step} loss {total / len(self.loader):.4f} val dice {self.validate():.3f}")


if __name__ == "__main__":
    random.seed(0)
    torch.manual_seed(0)
    Trainer().fit()
