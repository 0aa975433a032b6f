# expect: sick
# symptom: trains smoothly but accuracy stays far below what PointNet reaches on such shapes
# axis: model
# cause: the cloud (batch, points, 3) is brought to channels-first by view/reshape instead of transpose/permute, which mixes the x, y, z coordinates of different points
# says: x?\.?transpose ?\(1, ?2\)|(view|reshape)\b.{0,100}(transpose|permute|scrambl|mix|interleav|layout|channel|axis|axes|instead|wrong|order)|(transpose|permute)\b.{0,80}(instead|missing|rather|view|reshape|should|not)|scrambl|(coordinates|xyz|axes).{0,60}(mixed|interleav|jumbl|garbl)
# onset_step: 0
# fix: use x.transpose(1, 2)
# mended: transpose(1, 2) instead of reshape
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(8)
rng = np.random.default_rng(8)
N_PTS, BATCH, EPOCHS, N_TRAIN, N_TEST = 96, 24, 5, 1800, 360
NAMES = ["sphere", "cube", "cylinder", "cone", "torus", "ellipsoid", "cross", "helix"]


def surface(kind, n):
    u, v = rng.uniform(0, 2 * np.pi, n), rng.uniform(-1, 1, n)
    g = rng.normal(size=(n, 3))
    g /= np.linalg.norm(g, axis=1, keepdims=True)
    if kind == "sphere":
        p = g
    elif kind == "ellipsoid":
        p = g * np.array([1.0, 0.75, 0.6])
    elif kind == "cube":
        p = rng.uniform(-1, 1, (n, 3))
        p[np.arange(n), rng.integers(0, 3, n)] = rng.choice([-1, 1], n)
        p *= 0.75
    elif kind == "cylinder":
        p = np.stack([0.75 * np.cos(u), 0.75 * np.sin(u), 0.8 * v], 1)
    elif kind == "cone":
        r = np.sqrt(rng.uniform(0, 1, n))
        p = np.stack([r * np.cos(u), r * np.sin(u), 1.4 * (0.6 - r)], 1)
    elif kind == "torus":
        w = rng.uniform(0, 2 * np.pi, n)
        p = np.stack([(0.8 + 0.3 * np.cos(w)) * np.cos(u), (0.8 + 0.3 * np.cos(w)) * np.sin(u), 0.3 * np.sin(w)], 1)
    elif kind == "cross":
        p = rng.uniform(-0.2, 0.2, (n, 3))
        p[np.arange(n), rng.integers(0, 3, n)] = rng.uniform(-1, 1, n)
    else:
        p = np.stack([0.7 * np.cos(3 * v * np.pi), 0.7 * np.sin(3 * v * np.pi), 0.8 * v], 1)
    return p


def cloud(kind):
    p = surface(kind, N_PTS) * rng.uniform(0.8, 1.2, (1, 3))
    q, r = np.linalg.qr(rng.normal(size=(3, 3)))
    p = p @ (q * np.sign(np.diag(r)))
    p = p - p.mean(0) + rng.normal(0, 0.03, p.shape)
    return p / np.linalg.norm(p, axis=1).max()


def dataset(n):
    y = rng.integers(0, len(NAMES), n)
    return torch.tensor(np.stack([cloud(NAMES[k]) for k in y]), dtype=torch.float32), torch.tensor(y)


class PointNet(nn.Module):
    def __init__(self, n_cls):
        super().__init__()
        chans = [3, 48, 64, 128]
        layers = []
        for i, o in zip(chans[:-1], chans[1:]):
            layers += [nn.Conv1d(i, o, 1, bias=False), nn.BatchNorm1d(o), nn.ReLU()]
        self.point = nn.Sequential(*layers)
        self.head = nn.Sequential(
            nn.Linear(128, 96), nn.BatchNorm1d(96), nn.ReLU(), nn.Dropout(0.3), nn.Linear(96, n_cls)
        )

    def forward(self, pts):
        b, n, c = pts.shape
        x = pts.transpose(1, 2) if MENDED else pts.reshape(b, c, n)
        return self.head(self.point(x).amax(-1))


@torch.no_grad()
def accuracy(model, x, y):
    model.eval()
    hit = sum((model(a).argmax(1) == b).sum().item() for a, b in zip(x.split(120), y.split(120)))
    model.train()
    return hit / len(y)


train_x, train_y = dataset(N_TRAIN)
test_x, test_y = dataset(N_TEST)
model = PointNet(len(NAMES))
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
per_epoch = N_TRAIN // BATCH
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, EPOCHS * per_epoch)
t0, step = time.time(), 0
for epoch in range(EPOCHS):
    order = torch.randperm(N_TRAIN)
    for k in range(per_epoch):
        i = order[k * BATCH : (k + 1) * BATCH]
        pts = train_x[i] + 0.01 * torch.randn(len(i), N_PTS, 3)
        loss = F.cross_entropy(model(pts), train_y[i])
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 25 == 0:
            print(f"epoch {epoch} step {step:4d} loss {loss.item():.4f}")
        step += 1
    print(f"== epoch {epoch} test accuracy {accuracy(model, test_x, test_y):.3f} ({time.time() - t0:.1f}s)")
