# expect: sick
# symptom: the loss stays almost where it began over the whole run, Dice on the held-out images hardly moves, nothing is non-finite and the printed gradient norm is huge
# axis: precision
# cause: gradients are clipped while they are still multiplied by the GradScaler's loss scale (no scaler.unscale_ before clip_grad_norm_), so after unscaling in scaler.step the update is tens of thousands of times too small
# says: unscale|(clip\w*).{0,100}(scaled|loss.?scale|still (multiplied|scaled)|scaler)|(scaled|scaler).{0,100}clip
# onset_step: 1
# fix: call scaler.unscale_(optimizer) before clip_grad_norm_
# mended: yes
"""Segment bright cells on a textured background with a small U-Net (mixed precision)."""

import argparse
import os
import time

import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)


def make_images(n, size, seed):
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[:size, :size].astype(np.float32)
    imgs = np.empty((n, 1, size, size), np.float32)
    masks = np.zeros((n, 1, size, size), np.float32)
    for i in range(n):
        bg = 0.4 * np.sin(xx * rng.uniform(0.1, 0.5) + yy * rng.uniform(0.1, 0.5) + rng.uniform(0, 6))
        for _ in range(rng.integers(2, 6)):
            cx, cy = rng.uniform(4, size - 4, 2)
            a, b = rng.uniform(2.5, 6.0, 2)
            inside = ((xx - cx) / a) ** 2 + ((yy - cy) / b) ** 2 < 1
            bg = np.where(inside, bg * 0.3 + rng.uniform(0.5, 0.9), bg)
            masks[i, 0][inside] = 1.0
        imgs[i, 0] = bg + rng.normal(0, 0.25, (size, size))
    return torch.from_numpy(imgs), torch.from_numpy(masks)


def block(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1),
        nn.GroupNorm(4, cout),
        nn.ReLU(inplace=True),
        nn.Conv2d(cout, cout, 3, padding=1),
        nn.GroupNorm(4, cout),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, w=8):
        super().__init__()
        self.d1, self.d2, self.mid = block(1, w), block(w, 2 * w), block(2 * w, 4 * w)
        self.pool = nn.MaxPool2d(2)
        self.up2 = nn.ConvTranspose2d(4 * w, 2 * w, 2, 2)
        self.u2 = block(4 * w, 2 * w)
        self.up1 = nn.ConvTranspose2d(2 * w, w, 2, 2)
        self.u1 = block(2 * w, w)
        self.head = nn.Conv2d(w, 1, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(self.pool(a))
        c = self.mid(self.pool(b))
        b = self.u2(torch.cat([self.up2(c), b], 1))
        a = self.u1(torch.cat([self.up1(b), a], 1))
        return self.head(a)


def soft_dice(logits, target, eps=1.0):
    p = logits.float().sigmoid()
    inter = (p * target).sum((1, 2, 3))
    return 1 - ((2 * inter + eps) / (p.sum((1, 2, 3)) + target.sum((1, 2, 3)) + eps)).mean()


@torch.no_grad()
def evaluate(net, x, y):
    net.eval()
    pred = torch.cat([net(c) > 0 for c in x.split(32)]).float()
    net.train()
    inter = (pred * y).sum((1, 2, 3))
    return ((2 * inter + 1) / (pred.sum((1, 2, 3)) + y.sum((1, 2, 3)) + 1)).mean().item()


def parse():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=320)
    ap.add_argument("--batch", type=int, default=16)
    ap.add_argument("--lr", type=float, default=0.05)
    ap.add_argument("--max-norm", type=float, default=1.0)
    ap.add_argument("--seed", type=int, default=3)
    return ap.parse_args()


def main():
    args = parse()
    torch.manual_seed(args.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    amp_dtype = torch.float16 if device == "cuda" else torch.bfloat16
    mended = os.environ.get("MENDED") == "1"

    x, y = make_images(512, 32, args.seed)
    xv, yv = make_images(96, 32, args.seed + 1)
    xv, yv = xv.to(device), yv.to(device)
    net = UNet().to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr * 2, total_steps=args.steps)
    scaler = torch.amp.GradScaler(device)
    bce = nn.BCEWithLogitsLoss()

    start = time.time()
    for step in range(1, args.steps + 1):
        idx = torch.randint(0, len(x), (args.batch,))
        xb, yb = x[idx].to(device), y[idx].to(device)
        if torch.rand(()) < 0.5:
            xb, yb = xb.flip(-1), yb.flip(-1)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, dtype=amp_dtype):
            logits = net(xb)
            loss = bce(logits.float(), yb) + soft_dice(logits, yb)
        scaler.scale(loss).backward()
        if mended:
            scaler.unscale_(optimizer)
        gnorm = nn.utils.clip_grad_norm_(net.parameters(), args.max_norm)
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        if step % 20 == 0:
            print(
                f"{step:4d} loss {loss.item():.4f} gnorm {gnorm.item():.3g} "
                f"lr {scheduler.get_last_lr()[0]:.4f} scale {scaler.get_scale():.0f}"
            )
        if step % 80 == 0:
            print(f"     val dice {evaluate(net, xv, yv):.4f}  ({time.time() - start:.1f}s)")


if __name__ == "__main__":
    main()
