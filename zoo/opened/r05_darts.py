# expect: sick
# axis: data
# symptom: training error in pixels stops at the size of the crop's play and will not go lower, although the picture is easy
# cause: in training the crop is cut at a random place, but the points are moved as if it were always the centre crop, so picture and target do not agree
# says: (crop|shift|jitter|offset|augment|translat|window|random).{0,250}(key.?point|target|label|point|coordinate|tip|tail)|(key.?point|target|label|point|coordinate).{0,250}(crop|shift|jitter|offset|augment|translat|not moved|moved)
# onset_step: 0
# fix: move the points by the same offset
# mended: the points are moved by the same offset as the crop
import os

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

ALT = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)

FULL, SIDE = 44, 32
MARGIN = (FULL - SIDE) // 2


def frame(g):
    """A dart on a noisy ground: bright tip, faint tail, a line between. Returns the picture and (tip x, tip y, tail x, tail y)."""
    yy, xx = np.mgrid[0:FULL, 0:FULL]
    tip = g.uniform(MARGIN + 7, FULL - MARGIN - 7, 2)
    ang, length = g.uniform(0, 6.283), g.uniform(5, 7)
    tail = tip + length * np.array([np.cos(ang), np.sin(ang)])
    pic = 0.12 * g.normal(size=(FULL, FULL))
    for s in np.linspace(0, 1, 6):
        cx, cy = tip + s * (tail - tip)
        pic += (2.2 * (1 - s) ** 3 + 0.5) * np.exp(-((xx - cx) ** 2 + (yy - cy) ** 2) / 3.0)
    return pic.astype(np.float32), np.concatenate([tip, tail]).astype(np.float32)


class Darts(Dataset):
    def __init__(self, n, seed, play=0):
        g = np.random.default_rng(seed)
        self.items = [frame(g) for _ in range(n)]
        self.play = play
        self.g = np.random.default_rng(seed + 1)

    def __len__(self):
        return len(self.items)

    def cut(self, pic, points):
        ox, oy = MARGIN + self.g.integers(-self.play, self.play + 1, size=2)
        pic = pic[oy : oy + SIDE, ox : ox + SIDE]
        origin = np.array([ox, oy, ox, oy]) if ALT else np.full(4, MARGIN)
        return pic, points - origin.astype(np.float32)

    def __getitem__(self, i):
        pic, points = self.cut(*self.items[i])
        return torch.from_numpy(np.ascontiguousarray(pic))[None], torch.from_numpy(points) / SIDE


def make_net():
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 64, 96),
        nn.ReLU(),
        nn.Linear(96, 4),
    )


def pixels(a, b):
    return (a - b).detach().abs().mean().item() * SIDE


def main():
    torch.manual_seed(61)
    train = DataLoader(Darts(1280, 61, play=5), batch_size=32, shuffle=True)
    held = DataLoader(Darts(256, 71), batch_size=128)
    net = make_net()
    opt = torch.optim.Adam(net.parameters(), lr=1.5e-3)
    for epoch in range(12):
        loss_sum, err = 0.0, 0.0
        for pic, points in train:
            out = net(pic)
            loss = 100 * nn.functional.mse_loss(out, points)
            opt.zero_grad()
            loss.backward()
            opt.step()
            loss_sum += loss.item()
            err += pixels(out, points)
        with torch.no_grad():
            away = np.mean([pixels(net(p), q) for p, q in held])
        print(
            f"epoch {epoch:2d}  loss {loss_sum / len(train):.4f}  train {err / len(train):.2f} px  held out {away:.2f} px",
            flush=True,
        )


if __name__ == "__main__":
    main()
