# expect: sick
# symptom: the segmentation loss stops falling early and the mean IoU stays poor, however long it trains
# axis: data
# cause: the random crop is drawn separately for the image and for its mask, so the mask does not line up with the image
# says: ((image|input)s?.{0,30}(mask|label|target)s?.{0,40}(crop\w*|augment\w*|transform\w*|flip\w*).{0,30}(separate\w*|independent\w*|differ\w*)|(crop|augment\w*|transform\w*)\w*.{0,30}(image|input)s? (only|but not)|(crop|augment\w*|transform\w*|random\w*).{0,60}(separate\w*|independent\w*|differ\w*|twice|not (the )?same|out of sync|mismatch\w*|inconsisten\w*|only).{0,60}(mask|label|target|image)|(mask|label|target)s?\b.{0,60}(misalign\w*|not (be )?align\w*|do(es)? not (line up|match|correspond)|shifted|out of sync|mismatch\w*|inconsisten\w*).{0,60}(image|input|crop|pixel)|(image|input)s?.{0,30}(mask|label|target)s?.{0,30}(misalign\w*|mismatch\w*|out of sync|unaligned|desync\w*|not align\w*|do not correspond))
# onset_step: 1
# fix: draw the crop offsets once per sample and use them for both image and mask
# mended: the same (top, left) is used for image and mask
import argparse
import os
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
CLASSES = 4


def draw_scene(rng, size=48):
    img = rng.normal(0.0, 0.25, (3, size, size)).astype(np.float32)
    mask = np.zeros((size, size), dtype=np.int64)
    yy, xx = np.mgrid[0:size, 0:size]
    for _ in range(rng.integers(3, 6)):
        cls = int(rng.integers(1, CLASSES))
        cy, cx, r = rng.integers(6, size - 6), rng.integers(6, size - 6), rng.integers(4, 9)
        if cls == 1:
            m = (yy - cy) ** 2 + (xx - cx) ** 2 < r * r
        elif cls == 2:
            m = (abs(yy - cy) < r) & (abs(xx - cx) < r)
        else:
            m = abs(yy - cy) + abs(xx - cx) < r
        mask[m] = cls
        tint = np.full(3, 0.3, dtype=np.float32)
        tint[cls - 1] = 1.0
        img[:, m] += tint[:, None] * rng.uniform(0.7, 1.3)
    return img, mask


class RandomCrop:
    def __init__(self, size):
        self.size = size

    def get_params(self, a):
        h, w = a.shape[-2:]
        return random.randint(0, h - self.size), random.randint(0, w - self.size)

    def __call__(self, a, params=None):
        top, left = params or self.get_params(a)
        return a[..., top : top + self.size, left : left + self.size]


class CenterCrop:
    def __init__(self, size):
        self.size = size

    def __call__(self, a, params=None):
        o = (a.shape[-1] - self.size) // 2
        return a[..., o : o + self.size, o : o + self.size]


class SceneDataset(Dataset):
    def __init__(self, n, seed, transform):
        rng = np.random.default_rng(seed)
        self.items = [draw_scene(rng) for _ in range(n)]
        self.transform = transform

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        img, mask = self.items[i]
        params = None
        if MENDED and isinstance(self.transform, RandomCrop):
            params = self.transform.get_params(img)
        img = self.transform(img, params)
        mask = self.transform(mask, params)
        return torch.from_numpy(img.copy()), torch.from_numpy(mask.copy())


def double_conv(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1),
        nn.GroupNorm(4, cout),
        nn.ReLU(),
        nn.Conv2d(cout, cout, 3, padding=1),
        nn.GroupNorm(4, cout),
        nn.ReLU(),
    )


class MiniUNet(nn.Module):
    def __init__(self, w=12):
        super().__init__()
        self.d1, self.d2, self.mid = double_conv(3, w), double_conv(w, 2 * w), double_conv(2 * w, 4 * w)
        self.up2 = nn.ConvTranspose2d(4 * w, 2 * w, 2, 2)
        self.u2 = double_conv(4 * w, 2 * w)
        self.up1 = nn.ConvTranspose2d(2 * w, w, 2, 2)
        self.u1 = double_conv(2 * w, w)
        self.out = nn.Conv2d(w, CLASSES, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        c = self.mid(F.max_pool2d(b, 2))
        b = self.u2(torch.cat([self.up2(c), b], 1))
        a = self.u1(torch.cat([self.up1(b), a], 1))
        return self.out(a)


@torch.no_grad()
def mean_iou(model, loader):
    inter, union = torch.zeros(CLASSES), torch.zeros(CLASSES)
    for x, m in loader:
        p = model(x).argmax(1)
        for c in range(CLASSES):
            inter[c] += ((p == c) & (m == c)).sum()
            union[c] += ((p == c) | (m == c)).sum()
    return (inter / union.clamp(min=1)).mean().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=8)
    ap.add_argument("--batch-size", type=int, default=16)
    ap.add_argument("--lr", type=float, default=2e-3)
    args = ap.parse_args([])
    torch.manual_seed(0)
    random.seed(0)
    train = DataLoader(SceneDataset(640, 1, RandomCrop(32)), batch_size=args.batch_size, shuffle=True)
    val = DataLoader(SceneDataset(96, 2, CenterCrop(32)), batch_size=32)
    model = MiniUNet()
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr)
    step = 0
    for epoch in range(args.epochs):
        for x, m in train:
            loss = F.cross_entropy(model(x), m)
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            if step % 20 == 0:
                print(f"step {step:4d} loss {loss.item():.4f}")
        print(f"epoch {epoch} val mIoU {mean_iou(model, val):.3f}")


if __name__ == "__main__":
    main()
