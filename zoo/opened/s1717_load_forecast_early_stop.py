# expect: sick
# symptom: the final test error after loading the best weights is much worse than the best validation error; the "best" model behaves like the last, overfitted one
# axis: harness
# cause: best = model.state_dict() keeps references to the live parameters, no copy, so later steps overwrite the saved best weights and the restore does nothing
# says: deep ?copy|\bclone|(reference|alias|share[sd]?|same (tensor|storage|memory)|in[- ]place|overwrit|live (param|weight|tensor)).{0,120}(state_dict|best|weight|param|checkpoint|snapshot)|(state_dict|best|snapshot|checkpoint).{0,120}(reference|alias|shar(ed?|es|ing)|same (tensor|storage|memory)|not (a )?cop|without (a )?cop|overwrit|never cop|copied)|not restor|best (weights|state|model).{0,60}(not|never|is the last|last)
# onset_step: 46
# fix: copy.deepcopy(model.state_dict()) (or clone each tensor)
# mended: the best state is deep-copied
import copy
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(13)
rng = np.random.default_rng(13)
LOOK, HORIZON, BATCH, EPOCHS = 48, 12, 24, 24


def meter(days):
    """hourly load of one site: daily and weekly shape, weather, and a lot of noise"""
    n = 24 * days
    h = np.arange(n)
    temp = np.zeros(n)
    for i in range(1, n):
        temp[i] = 0.97 * temp[i - 1] + rng.normal(0, 0.3)
    y = 1.2 * np.sin(2 * np.pi * h / 24) + 0.5 * np.sin(4 * np.pi * h / 24 + 1) + 0.6 * ((h // 24) % 7 >= 5)
    y = y + 0.7 * np.abs(temp) + rng.normal(0, 0.45, n)
    return np.stack([y, temp, np.sin(2 * np.pi * h / 24), np.cos(2 * np.pi * h / 24)], 1).astype(np.float32)


def windows(a, stride):
    x, y = [], []
    for s in range(0, len(a) - LOOK - HORIZON, stride):
        x.append(a[s : s + LOOK])
        y.append(a[s + LOOK : s + LOOK + HORIZON, 0])
    return torch.tensor(np.stack(x)), torch.tensor(np.stack(y))


class Forecaster(nn.Module):
    def __init__(self, hidden=40):
        super().__init__()
        self.gru = nn.GRU(4, hidden, batch_first=True)
        self.mix = nn.Sequential(nn.Linear(hidden + LOOK, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU())
        self.out = nn.Linear(256, HORIZON)

    def forward(self, x):
        _, h = self.gru(x)
        return self.out(self.mix(torch.cat([h[-1], x[..., 0]], -1)))


class Checkpointer:
    """remembers the weights with the lowest validation error"""

    def __init__(self):
        self.best, self.state, self.epoch = float("inf"), None, -1

    def update(self, model, value, epoch):
        if value < self.best:
            state = model.state_dict()
            self.best, self.state, self.epoch = value, copy.deepcopy(state) if MENDED else state, epoch

    def restore(self, model):
        model.load_state_dict(self.state)


@torch.no_grad()
def evaluate(model, x, y):
    model.eval()
    out = F.mse_loss(model(x), y).item()
    model.train()
    return out


series = meter(150)
mean, std = series[: 24 * 70].mean(0), series[: 24 * 70].std(0)
series = (series - mean) / std
xt, yt = windows(series[: 24 * 70], 3)
xv, yv = windows(series[24 * 70 : 24 * 110], 2)
xs, ys = windows(series[24 * 110 :], 2)
model = Forecaster()
opt = torch.optim.Adam(model.parameters(), lr=2.5e-3)
ck = Checkpointer()
step, t0 = 0, time.time()
print(f"{len(xt)} training, {len(xv)} validation, {len(xs)} test windows")
for epoch in range(EPOCHS):
    order, total = torch.randperm(len(xt)), 0.0
    for i in order.split(BATCH):
        loss = F.mse_loss(model(xt[i]), yt[i])
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        total += loss.item() * len(i)
        step += 1
    val = evaluate(model, xv, yv)
    ck.update(model, val, epoch)
    print(
        f"epoch {epoch:2d} step {step:4d} train loss {total / len(xt):.4f} val {val:.4f} best {ck.best:.4f} @ {ck.epoch}"
    )

ck.restore(model)
print(
    f"loaded epoch {ck.epoch}: val {evaluate(model, xv, yv):.4f} test {evaluate(model, xs, ys):.4f} ({time.time() - t0:.1f}s)"
)
