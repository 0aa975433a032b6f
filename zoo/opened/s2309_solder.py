# expect: sick
# symptom: the loss and the IoU improve for more than a hundred steps, then the loss becomes NaN from one step to the next and stays so
# axis: loss
# cause: the focal factor (1 - pt) ** 0.5 has an infinite derivative at zero, so once a very confident pixel rounds pt to exactly 1 the backward pass gives inf * 0 = NaN
# says: (focal|\(?1 ?- ?p_?t?\)?|pow|power|exponent|gamma|square root|sqrt|modulat).{0,250}(infinit|inf\b|nan|non-?finite|undefined|singular|derivative|gradient|div)|(infinit|nan|singular|undefined|diverg|unbounded).{0,120}(derivative|gradient|backward|slope).{0,200}(focal|pow|gamma|sqrt|square root|exponent|confident|p_?t|saturat)
# onset_step: 147
# fix: clamp (1 - pt) to at least 1e-6 before raising it to gamma
# mended: yes
"""Solder-joint inspection: pixel-wise defect segmentation on board crops with a focal objective."""

import argparse
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"


def render_board(rng, size=40):
    yy, xx = np.mgrid[0:size, 0:size].astype(np.float32)
    img = 0.25 + 0.04 * np.sin(xx * rng.uniform(0.4, 0.8)) + rng.normal(0, 0.03, (size, size))
    mask = np.zeros((size, size), np.float32)
    for _ in range(rng.integers(3, 7)):
        cx, cy = rng.uniform(4, size - 4, 2)
        r = rng.uniform(2.0, 4.0)
        d = np.hypot(xx - cx, yy - cy)
        pad = np.clip(r + 0.5 - d, 0, 1)
        img = img * (1 - pad) + pad * rng.uniform(0.6, 0.75)
        if rng.random() < 0.3:
            hole = np.clip(r * 0.6 + 0.5 - d, 0, 1)
            img = img * (1 - hole) + hole * rng.uniform(0.9, 1.0)
            mask[d < r * 0.6] = 1
        else:
            mask[d < r] = 0
    img = img * np.exp(rng.normal(0, 0.15))  # exposure differs between cameras
    return img.astype(np.float32), mask


def build_set(n, seed):
    rng = np.random.default_rng(seed)
    pairs = [render_board(rng) for _ in range(n)]
    x = torch.from_numpy(np.stack([p[0] for p in pairs]))[:, None]
    y = torch.from_numpy(np.stack([p[1] for p in pairs]))[:, None]
    return (x - 0.35) / 0.2, y


def block(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1),
        nn.LeakyReLU(0.1, inplace=True),
        nn.Conv2d(cout, cout, 3, padding=1),
        nn.LeakyReLU(0.1, inplace=True),
    )


class MiniUNet(nn.Module):
    def __init__(self, w=10):
        super().__init__()
        self.enc1, self.enc2 = block(1, w), block(w, 2 * w)
        self.mid = block(2 * w, 2 * w)
        self.dec2, self.dec1 = block(4 * w, w), block(2 * w, w)
        self.head = nn.Conv2d(w, 1, 1)

    def forward(self, x):
        a = self.enc1(x)
        b = self.enc2(F.max_pool2d(a, 2))
        c = self.mid(F.max_pool2d(b, 2))
        c = F.interpolate(c, scale_factor=2, mode="nearest")
        d = self.dec2(torch.cat([c, b], 1))
        d = F.interpolate(d, scale_factor=2, mode="nearest")
        return self.head(self.dec1(torch.cat([d, a], 1)))


class SoftFocal(nn.Module):
    """A mild focusing exponent keeps some pull from the easy background."""

    def __init__(self, gamma=0.5, alpha=0.75):
        super().__init__()
        self.gamma, self.alpha = gamma, alpha

    def forward(self, logits, target):
        ce = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
        pt = torch.exp(-ce)
        rest = 1 - pt
        if MENDED:
            rest = rest.clamp_min(1e-6)
        weight = self.alpha * target + (1 - self.alpha) * (1 - target)
        return (weight * rest**self.gamma * ce).mean()


@torch.no_grad()
def iou(net, x, y):
    net.eval()
    pred = net(x) > 0
    net.train()
    hit = (pred & (y > 0.5)).sum().item()
    return hit / max(1, (pred | (y > 0.5)).sum().item())


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=600)
    ap.add_argument("--batch", type=int, default=12)
    ap.add_argument("--lr", type=float, default=1e-3)
    args = ap.parse_args()

    torch.manual_seed(21)
    x, y = build_set(480, seed=8)
    vx, vy = build_set(60, seed=9)
    net = MiniUNet()
    criterion = SoftFocal()
    opt = torch.optim.Adam(net.parameters(), lr=args.lr)

    for step in range(1, args.steps + 1):
        pick = torch.randint(0, len(x), (args.batch,))
        bx, by = x[pick], y[pick]
        if torch.rand(()) < 0.5:
            bx, by = bx.flip(-1), by.flip(-1)
        loss = criterion(net(bx), by)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if step % 20 == 0 or step == 1:
            print(f"it {step:4d} | focal {loss.item():.5f}")
        if step % 100 == 0:
            print(f"        | val IoU {iou(net, vx, vy):.3f}")


if __name__ == "__main__":
    main()
