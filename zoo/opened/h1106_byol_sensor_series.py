# expect: healthy
# symptom: half of the parameters never get a gradient and are not in the optimizer, the loss is a cosine distance without negatives (BYOL: target network is a moving average under no_grad)
# axis: none
# mended: none
import copy
import math
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"

T, KINDS = 96, 6


def make_series(n, seed):
    """Machine vibration: six kinds with their own pair of frequencies and decay."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, KINDS, n)
    t = np.arange(T)
    f1 = np.array([0.05, 0.06, 0.075, 0.05, 0.06, 0.075])[y] * rng.uniform(0.95, 1.05, n)
    f2 = np.array([0.20, 0.23, 0.26, 0.26, 0.20, 0.23])[y] * rng.uniform(0.95, 1.05, n)
    ph = rng.uniform(0, 2 * np.pi, (2, n))
    x = np.sin(2 * np.pi * f1[:, None] * t + ph[0][:, None]) + 0.6 * np.sin(
        2 * np.pi * f2[:, None] * t + ph[1][:, None]
    )
    return torch.tensor(x + rng.normal(0, 0.6, x.shape), dtype=torch.float32), torch.from_numpy(y)


def augment(x):
    n = x.size(0)
    shift = torch.randint(0, T, (n, 1))
    x = x.gather(1, (torch.arange(T)[None] + shift) % T)
    x = x * (0.6 + 0.8 * torch.rand(n, 1)) + 0.2 * torch.randn_like(x)
    start = torch.randint(0, T - 16, (n, 1))
    pos = torch.arange(T)[None]
    return x.masked_fill((pos >= start) & (pos < start + 16), 0.0)


def projector(i, o=32, h=96):
    return nn.Sequential(nn.Linear(i, h), nn.BatchNorm1d(h), nn.ReLU(), nn.Linear(h, o))


class Backbone(nn.Module):
    def __init__(self, c=24):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(1, c, 9, 2, 4),
            nn.BatchNorm1d(c),
            nn.ReLU(),
            nn.Conv1d(c, 2 * c, 7, 2, 3),
            nn.BatchNorm1d(2 * c),
            nn.ReLU(),
            nn.Conv1d(2 * c, 2 * c, 5, 2, 2),
            nn.BatchNorm1d(2 * c),
            nn.ReLU(),
        )
        self.dim = 2 * c

    def forward(self, x):
        return self.net(x[:, None]).mean(-1)


class BYOL(nn.Module):
    def __init__(self):
        super().__init__()
        b = Backbone()
        self.online = nn.Sequential(b, projector(b.dim))
        self.predictor = projector(32)
        self.target = copy.deepcopy(self.online)
        for p in self.target.parameters():
            p.requires_grad_(False)

    def forward(self, a, b):
        p = F.normalize(self.predictor(self.online(torch.cat([a, b]))), dim=1)
        with torch.no_grad():
            z = F.normalize(self.target(torch.cat([b, a])), dim=1)
        return 2 - 2 * (p * z).sum(1).mean()

    @torch.no_grad()
    def follow(self, m):
        for o, t in zip(self.online.parameters(), self.target.parameters()):
            t.mul_(m).add_(o, alpha=1 - m)


def probe(model, x, y, xt, yt):
    backbone = model.online[0].eval()
    with torch.no_grad():
        f, ft = backbone(x), backbone(xt)
    model.train()
    mu, sd = f.mean(0), f.std(0) + 1e-5
    f, ft = (f - mu) / sd, (ft - mu) / sd
    w = torch.linalg.lstsq(torch.cat([f, torch.ones(len(f), 1)], 1).double(), F.one_hot(y, KINDS).double()).solution
    pred = torch.cat([ft, torch.ones(len(ft), 1)], 1).double() @ w
    return (pred.argmax(1) == yt).float().mean().item(), F.normalize(ft, dim=1).std(0).mean().item()


def main():
    torch.manual_seed(0)
    x, y = make_series(4000, 0)
    xl, yl, (xt, yt) = x[:200], y[:200], make_series(600, 1)
    model = BYOL()
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-3, weight_decay=1e-4)
    steps = 400
    for step in range(steps):
        xb = x[torch.randint(0, len(x), (96,))]
        loss = model(augment(xb), augment(xb))
        opt.zero_grad()
        loss.backward()
        opt.step()
        model.follow(1 - 0.03 * (math.cos(math.pi * step / steps) + 1) / 2)
        if step % 20 == 0:
            print(f"step {step:4d} byol loss {loss.item():.4f}")
        if step % 100 == 0 or step == steps - 1:
            acc, spread = probe(model, xl, yl, xt, yt)
            print(f"   linear probe acc {acc:.3f} feature spread {spread:.3f}")


if __name__ == "__main__":
    main()
