# expect: sick
# symptom: the segmentation loss falls well, then it is NaN from one step on
# axis: loss
# cause: hand-written BCE takes log(1-p) of a sigmoid that rounds to exactly 1 in float32: log(0), 0*inf = NaN
# says: log\(?.{0,40}(0|zero)|saturat|from.?logits|with_?logits|\beps|clamp.{0,40}prob|exactly (1|one|0|zero)
# onset_step: 58
# fix: clamp the probabilities away from 0 and 1 (or use binary_cross_entropy_with_logits)
# mended: the script applies that change if the environment has MENDED=1
"""Cell segmentation on small fluorescence crops with a two level U-Net."""

import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
SIZE, BATCH, STEPS = 32, 16, 320


class Crops:
    """Round bright cells on a dim noisy background; a few crops come from the high gain channel."""

    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        yy, xx = np.mgrid[:SIZE, :SIZE]
        self.x = np.zeros((n, 1, SIZE, SIZE), np.float32)
        self.y = np.zeros((n, 1, SIZE, SIZE), np.float32)
        for i in range(n):
            img = rng.normal(0.0, 0.35, (SIZE, SIZE))
            mask = np.zeros((SIZE, SIZE), bool)
            for _ in range(rng.integers(1, 4)):
                cy, cx, r = rng.uniform(4, SIZE - 4), rng.uniform(4, SIZE - 4), rng.uniform(3, 6)
                cell = (yy - cy) ** 2 + (xx - cx) ** 2 < r * r
                mask |= cell
                img[cell] += rng.uniform(0.8, 1.6)
            gain = rng.uniform(1.4, 2.0) if rng.random() < 0.02 else rng.uniform(0.8, 1.2)
            self.x[i, 0], self.y[i, 0] = img * gain, mask

    def batches(self, steps, seed):
        rng = np.random.default_rng(seed)
        for _ in range(steps):
            idx = rng.integers(0, len(self.x), BATCH)
            x, y = self.x[idx], self.y[idx]
            if rng.random() < 0.5:
                x, y = x[..., ::-1].copy(), y[..., ::-1].copy()
            yield torch.from_numpy(x), torch.from_numpy(y)


def conv(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1), nn.ReLU(), nn.Conv2d(cout, cout, 3, padding=1), nn.ReLU())


class MiniUNet(nn.Module):
    def __init__(self, w=10):
        super().__init__()
        self.down = conv(1, w)
        self.mid = conv(w, 2 * w)
        self.up = nn.ConvTranspose2d(2 * w, w, 2, stride=2)
        self.fuse = conv(2 * w, w)
        self.out = nn.Conv2d(w, 1, 1)

    def forward(self, x):
        a = self.down(x)
        b = self.up(self.mid(F.max_pool2d(a, 2)))
        return torch.sigmoid(self.out(self.fuse(torch.cat([a, b], 1))))


def seg_loss(p, y, pos_weight=2.0):
    """Weighted cross entropy per pixel plus soft dice."""
    p = p.clamp(1e-6, 1 - 1e-6) if MENDED else p
    ce = -(pos_weight * y * torch.log(p) + (1 - y) * torch.log(1 - p)).mean()
    inter = (p * y).sum((1, 2, 3))
    dice = 1 - (2 * inter + 1) / (p.sum((1, 2, 3)) + y.sum((1, 2, 3)) + 1)
    return ce + 0.5 * dice.mean()


@torch.no_grad()
def iou(net, data):
    p = net(torch.from_numpy(data.x)) > 0.5
    y = torch.from_numpy(data.y) > 0.5
    return ((p & y).sum() / (p | y).sum().clamp(min=1)).item()


def main():
    torch.manual_seed(5)
    train, valid = Crops(1200, 0), Crops(150, 1)
    net = MiniUNet()
    opt = torch.optim.Adam(net.parameters(), lr=7e-4)
    running = None
    for step, (x, y) in enumerate(train.batches(STEPS, 3)):
        loss = seg_loss(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        running = loss.item() if running is None else 0.9 * running + 0.1 * loss.item()
        if step % 20 == 0:
            print(f"step {step:4d} loss {loss.item():.4f} (avg {running:.4f})")
        if (step + 1) % 160 == 0:
            print(f"step {step:4d} valid IoU {iou(net, valid):.3f}")


if __name__ == "__main__":
    main()
