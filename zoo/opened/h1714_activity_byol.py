# expect: healthy
# symptom: looks like missing negatives, a network that gets no gradient and is not in the optimizer, batch norm left in train mode in it, and a loss that first falls, then may rise a little: BYOL with an EMA target, linear probe improves
# axis: none
# mended: none
import copy
import math
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(15)
rng = np.random.default_rng(15)
T, CH, NCLS, BATCH, STEPS = 96, 3, 6, 64, 360


def activities(n):
    """accelerometer windows of six activities with individual gait and sensor orientation"""
    t = np.arange(T) / 32
    y = rng.integers(0, NCLS, n)
    f = np.array([0.0, 1.0, 1.7, 2.6, 1.0, 1.7])[y] * rng.uniform(0.92, 1.08, n)
    amp = np.array([0.1, 0.7, 0.9, 1.5, 0.7, 0.9])[y] * rng.uniform(0.8, 1.2, n)
    h2 = np.array([0.0, 0.1, 0.1, 0.3, 0.9, 0.9])[y]
    ph = rng.uniform(0, 2 * np.pi, (n, 1))
    base = amp[:, None] * (
        np.sin(2 * np.pi * f[:, None] * t + ph) + h2[:, None] * np.sin(4 * np.pi * f[:, None] * t + 2 * ph)
    )
    axis = rng.normal(size=(n, CH)) * 0.35 + np.array([1.0, 0.4, 0.2])
    return torch.tensor(
        base[:, None] * axis[:, :, None] + rng.normal(0, 0.25, (n, CH, T)), dtype=torch.float32
    ), torch.tensor(y)


def augment(x):
    x = x * torch.empty(len(x), CH, 1).uniform_(0.75, 1.3)
    x = torch.stack([s.roll(int(k), -1) for s, k in zip(x, torch.randint(0, T, (len(x),)))])
    start = torch.randint(0, T - 16, (len(x), 1))
    pos = torch.arange(T)[None]
    x = x.masked_fill(((pos >= start) & (pos < start + 16))[:, None], 0.0)
    return x + 0.15 * torch.randn_like(x)


def mlp(i, h, o):
    return nn.Sequential(nn.Linear(i, h), nn.BatchNorm1d(h), nn.ReLU(), nn.Linear(h, o))


class Encoder(nn.Module):
    def __init__(self, d=64):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(CH, 32, 9, 2, 4),
            nn.BatchNorm1d(32),
            nn.ReLU(),
            nn.Conv1d(32, 48, 7, 2, 3),
            nn.BatchNorm1d(48),
            nn.ReLU(),
            nn.Conv1d(48, d, 5, 2, 2),
            nn.BatchNorm1d(d),
            nn.ReLU(),
        )
        self.proj = mlp(d, 128, 32)

    def features(self, x):
        return self.body(x).mean(-1)

    def forward(self, x):
        return self.proj(self.features(x))


class BYOL(nn.Module):
    def __init__(self):
        super().__init__()
        self.online, self.predictor = Encoder(), mlp(32, 128, 32)
        self.target = copy.deepcopy(self.online).requires_grad_(False)

    def loss(self, a, b):
        p, q = self.predictor(self.online(a)), self.predictor(self.online(b))
        with torch.no_grad():
            ta, tb = self.target(a), self.target(b)
        return 4 - 2 * F.cosine_similarity(p, tb).mean() - 2 * F.cosine_similarity(q, ta).mean()

    @torch.no_grad()
    def follow(self, m):
        for t, o in zip(self.target.parameters(), self.online.parameters()):
            t.lerp_(o, 1 - m)


@torch.no_grad()
def probe(model, train, test):
    """ridge regression on the pooled features"""
    model.eval()
    f, g = model.online.features(train[0]), model.online.features(test[0])
    model.train()
    mu, sd = f.mean(0), f.std(0) + 1e-5
    f, g = ((torch.cat([(a - mu) / sd, torch.ones(len(a), 1)], 1)) for a in (f, g))
    w = torch.linalg.solve(f.t() @ f + 5.0 * torch.eye(f.shape[1]), f.t() @ F.one_hot(train[1], NCLS).float())
    spread = F.normalize(f[:, :-1], dim=1).std(0).mean().item()
    return ((g @ w).argmax(1) == test[1]).float().mean().item(), spread


unlabeled, _ = activities(4000)
small, test = activities(240), activities(600)
model = BYOL()
opt = torch.optim.AdamW([*model.online.parameters(), *model.predictor.parameters()], lr=1.5e-3, weight_decay=1e-4)
t0 = time.time()
print("before training: probe accuracy %.3f" % probe(model, small, test)[0])
for step in range(STEPS):
    x = unlabeled[torch.randint(0, len(unlabeled), (BATCH,))]
    loss = model.loss(augment(x), augment(x))
    opt.zero_grad()
    loss.backward()
    opt.step()
    model.follow(1 - 0.03 * (math.cos(math.pi * step / STEPS) + 1) / 2)
    if step % 15 == 0:
        print(f"step {step:4d} loss {loss.item():.4f}")
    if step % 90 == 89:
        acc, spread = probe(model, small, test)
        print(f"== step {step} probe accuracy {acc:.3f} feature spread {spread:.3f} ({time.time() - t0:.1f}s)")
