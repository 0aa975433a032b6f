# expect: sick
# symptom: the segmentation starts to find the cells, and after some thirty steps the loss is NaN
# axis: loss
# cause: the hand-written cross-entropy takes log(1-p) of a sigmoid that has rounded to one, so it computes 0 times minus infinity
# says: log ?\(? ?(of )?(0|zero|1 ?- ?p)|log\w*.{0,60}(zero|\b0\b|saturat|round|sigmoid|without (an? )?(eps|clamp)|unclamped|clamp|eps)|(saturat\w*|round\w*|sigmoid|probabilit\w+|zero).{0,60}\blog\w*|0 ?(\*|x|times) ?-?(minus )?inf|(with_?logits|logits form|unstable (bce|cross))|(bce|cross.?entropy).{0,60}(unclamped|unstable|without|clamp|eps|by hand|log)
# onset_step: 32
# fix: clamp the probability away from zero and one
# mended: MENDED=1
import os

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(9)


class Cells(Dataset):
    def __init__(self, n, seed, size=24):
        self.n, self.seed, self.size = n, seed, size

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = np.random.default_rng(self.seed * 100003 + i)
        yy, xx = np.mgrid[0 : self.size, 0 : self.size]
        mask = np.zeros((self.size, self.size), bool)
        for _ in range(g.integers(1, 4)):
            cx, cy, r = g.uniform(4, 20), g.uniform(4, 20), g.uniform(3, 5.5)
            mask |= (xx - cx) ** 2 + (yy - cy) ** 2 < r * r
        img = mask * (0.8 + 1.5 * g.lognormal(0, 0.6)) + g.normal(0, 0.25, mask.shape) + 0.02 * xx
        return torch.tensor(img, dtype=torch.float32).unsqueeze(0), torch.tensor(mask, dtype=torch.float32).unsqueeze(0)


def stage(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.ReLU(), nn.Conv2d(o, o, 3, padding=1), nn.ReLU())


class SmallUNet(nn.Module):
    def __init__(self, w=8):
        super().__init__()
        self.down, self.mid, self.up = stage(1, w), stage(w, 2 * w), stage(3 * w, w)
        self.pool, self.grow = nn.MaxPool2d(2), nn.Upsample(scale_factor=2)
        self.out = nn.Conv2d(w, 1, 1)

    def forward(self, x):
        a = self.down(x)
        b = self.grow(self.mid(self.pool(a)))
        return torch.sigmoid(self.out(self.up(torch.cat([a, b], 1))))


def mask_loss(p, y):
    if os.environ.get("MENDED") == "1":
        p = p.clamp(1e-6, 1 - 1e-6)
    bce = -(y * torch.log(p) + (1 - y) * torch.log(1 - p)).mean()
    dice = 1 - (2 * (p * y).sum() + 1) / (p.sum() + y.sum() + 1)
    return bce + dice


def main():
    loader = DataLoader(Cells(2400, 1), batch_size=12, shuffle=True)
    net = SmallUNet()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    step = 0
    for epoch in range(1):
        for img, mask in loader:
            p = net(img)
            loss = mask_loss(p, mask)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 2.0)
            opt.step()
            step += 1
            if step % 10 == 0:
                iou = ((p > 0.5) & (mask > 0)).sum() / ((p > 0.5) | (mask > 0)).sum().clamp(min=1)
                print(f"epoch {epoch} step {step} loss {loss.item():.4f} iou {iou.item():.3f}")


if __name__ == "__main__":
    main()
