# expect: sick
# symptom: segmentation loss stalls on a high plateau and validation IoU stays poor although the lesions are easy to see
# axis: data
# cause: the random flips/rotations are drawn separately for the image and for its mask, so in training the mask no longer lines up with the image
# says: (?=[\s\S]*(mask|target|label|annotation))(?=[\s\S]*(flip|augment|transform|rotat))(?=[\s\S]*(separate|independent|different (random|flip|transform|draw|augment)|not (the )?same|own random|mis-?align|mismatch|de-?sync|out of sync|no longer (line|match|align|correspond)|(not|n't) (line up|match|align|correspond)|inconsistent))
# onset_step: 0
# fix: draw the random parameters once per sample (or restore the RNG state) and apply the same transform to image and mask
# mended: yes
import os
import random
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)


@dataclass
class Config:
    n_train: int = 480
    n_val: int = 96
    size: int = 32
    batch: int = 16
    epochs: int = 8
    lr: float = 2e-3
    seed: int = 11


def seed_all(s):
    random.seed(s)
    np.random.seed(s)
    torch.manual_seed(s)


def synth_scan(rng, size):
    yy, xx = np.mgrid[0:size, 0:size].astype(np.float32)
    img = 0.25 * rng.standard_normal((size, size)).astype(np.float32)
    img += 0.3 * np.sin(xx / rng.uniform(3, 6) + rng.uniform(0, 6))
    mask = np.zeros((size, size), np.float32)
    for _ in range(rng.integers(1, 4)):
        cy, cx = rng.uniform(5, size - 5, 2)
        a, b = rng.uniform(2.5, 6.0, 2)
        th = rng.uniform(0, np.pi)
        u = (xx - cx) * np.cos(th) + (yy - cy) * np.sin(th)
        v = -(xx - cx) * np.sin(th) + (yy - cy) * np.cos(th)
        blob = (u / a) ** 2 + (v / b) ** 2 < 1
        mask[blob] = 1.0
        img[blob] += rng.uniform(0.7, 1.1)
    return img[None], mask[None]


class RandomDihedral:
    """Flips and quarter turns on a (C, H, W) tensor."""

    def __init__(self, p=0.5):
        self.p = p

    def __call__(self, t):
        if random.random() < self.p:
            t = t.flip(-1)
        if random.random() < self.p:
            t = t.flip(-2)
        if random.random() < self.p:
            t = torch.rot90(t, random.randint(1, 3), (-2, -1))
        return t.contiguous()


class ScanDataset(Dataset):
    def __init__(self, n, size, seed, transform=None):
        rng = np.random.default_rng(seed)
        items = [synth_scan(rng, size) for _ in range(n)]
        self.images = torch.from_numpy(np.stack([i for i, _ in items]).astype(np.float32))
        self.masks = torch.from_numpy(np.stack([m for _, m in items]))
        self.transform = transform

    def __len__(self):
        return len(self.images)

    def __getitem__(self, idx):
        img, mask = self.images[idx], self.masks[idx]
        if self.transform is not None:
            state = random.getstate()
            img = self.transform(img)
            if MENDED:
                random.setstate(state)
            mask = self.transform(mask)
        return img, mask


def block(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True))


class MiniUNet(nn.Module):
    def __init__(self, w=12):
        super().__init__()
        self.e1, self.e2 = block(1, w), block(w, 2 * w)
        self.mid = block(2 * w, 2 * w)
        self.d2, self.d1 = block(4 * w, w), block(2 * w, w)
        self.out = nn.Conv2d(w, 1, 1)

    def forward(self, x):
        a = self.e1(x)
        b = self.e2(F.max_pool2d(a, 2))
        m = self.mid(F.max_pool2d(b, 2))
        u = self.d2(torch.cat([F.interpolate(m, scale_factor=2.0), b], 1))
        u = self.d1(torch.cat([F.interpolate(u, scale_factor=2.0), a], 1))
        return self.out(u)


def bce_dice(logits, target):
    p = torch.sigmoid(logits)
    inter = (p * target).sum((1, 2, 3))
    dice = 1 - (2 * inter + 1) / (p.sum((1, 2, 3)) + target.sum((1, 2, 3)) + 1)
    return F.binary_cross_entropy_with_logits(logits, target) + dice.mean()


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    inter = union = loss = 0.0
    for x, y in loader:
        logits = model(x)
        loss += bce_dice(logits, y).item() * len(x)
        p = (logits > 0).float()
        inter += (p * y).sum().item()
        union += ((p + y) > 0).float().sum().item()
    return loss / len(loader.dataset), inter / max(union, 1.0)


def main():
    cfg = Config()
    seed_all(cfg.seed)
    train = DataLoader(
        ScanDataset(cfg.n_train, cfg.size, 1, RandomDihedral()), batch_size=cfg.batch, shuffle=True, drop_last=True
    )
    val = DataLoader(ScanDataset(cfg.n_val, cfg.size, 2), batch_size=48)
    model = MiniUNet()
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=1e-4)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=cfg.lr, total_steps=cfg.epochs * len(train))
    step = 0
    for epoch in range(cfg.epochs):
        model.train()
        for x, y in train:
            loss = bce_dice(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            if step % 20 == 0:
                print(f"step {step:4d} loss {loss.item():.4f} lr {sched.get_last_lr()[0]:.2e}")
            step += 1
        vl, iou = evaluate(model, val)
        print(f"epoch {epoch} val_loss {vl:.4f} val_iou {iou:.4f}")


if __name__ == "__main__":
    main()
