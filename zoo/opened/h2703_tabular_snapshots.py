# expect: healthy
# symptom: resembles a broken schedule or lost optimizer state: the learning rate jumps up every cycle, momentum is cleared and the loss goes up with it
# axis: schedule
"""Snapshot ensemble on a synthetic house-price table.

Four cosine cycles; the weights at the end of each cycle become one member of
the ensemble.  Momentum buffers are dropped at each restart, as in the original
snapshot recipe.
"""

import copy
import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)

RNG = np.random.default_rng(2024)
N, CYCLES, CYCLE_LEN, BATCH = 6000, 4, 200, 256
LR_MAX, LR_MIN = 0.015, 1e-5


def house_table(n):
    area = RNG.lognormal(4.6, 0.35, n)
    rooms = np.clip(np.round(area / 28 + RNG.normal(0, 0.8, n)), 1, 9)
    year = RNG.integers(1900, 2024, n)
    dist = RNG.gamma(2.0, 4.0, n)
    zone = RNG.integers(0, 15, n)
    heating = RNG.integers(0, 4, n)
    garden = RNG.random(n) < 0.4
    zone_effect = np.random.default_rng(5).normal(0, 0.25, 15)
    log_price = (
        7.5
        + 0.85 * np.log(area)
        - 0.035 * dist
        + zone_effect[zone]
        + 0.08 * garden * np.log1p(dist)
        + 0.15 * np.exp(-(((year - 1910) / 15.0) ** 2))
        + 0.002 * np.maximum(year - 1980, 0)
        + np.array([0, 0.04, -0.06, 0.09])[heating]
        + 0.02 * rooms * (dist < 5)
        + RNG.normal(0, 0.1, n)
    )
    num = np.stack([np.log(area), rooms, year, dist, garden], axis=1)
    cat = np.stack([zone, heating], axis=1)
    return num.astype(np.float32), cat.astype(np.int64), log_price.astype(np.float32)


class TabularNet(nn.Module):
    def __init__(self, n_num=5, cards=(15, 4), emb=6, hidden=160):
        super().__init__()
        self.embs = nn.ModuleList([nn.Embedding(c, emb) for c in cards])
        self.inp = nn.Linear(n_num + emb * len(cards), hidden)
        self.blocks = nn.ModuleList(
            [
                nn.Sequential(
                    nn.LayerNorm(hidden),
                    nn.Linear(hidden, hidden),
                    nn.GELU(),
                    nn.Dropout(0.1),
                    nn.Linear(hidden, hidden),
                )
                for _ in range(3)
            ]
        )
        self.out = nn.Sequential(nn.LayerNorm(hidden), nn.Linear(hidden, 1))

    def forward(self, num, cat):
        parts = [num] + [e(cat[:, i]) for i, e in enumerate(self.embs)]
        h = self.inp(torch.cat(parts, dim=1))
        for block in self.blocks:
            h = h + block(h)
        return self.out(h)[:, 0]


def restart(optimizer, lr):
    optimizer.state.clear()
    for group in optimizer.param_groups:
        group["lr"] = lr


def rmse(pred, y):
    return float(torch.sqrt(torch.mean((pred - y) ** 2)))


num, cat, y = house_table(N)
n_tr = int(0.8 * N)
mu, sd = num[:n_tr].mean(0), num[:n_tr].std(0)
num = torch.from_numpy((num - mu) / sd)
cat = torch.from_numpy(cat)
y_mean, y_std = y[:n_tr].mean(), y[:n_tr].std()
target = torch.from_numpy((y - y_mean) / y_std)

torch.manual_seed(9)
model = TabularNet()
sgd = torch.optim.SGD(model.parameters(), lr=LR_MAX, momentum=0.9, nesterov=True, weight_decay=1e-4)
loss_fn = nn.MSELoss()
members = []
step = 0
for cycle in range(CYCLES):
    restart(sgd, LR_MAX)
    for k in range(CYCLE_LEN):
        lr = LR_MIN + 0.5 * (LR_MAX - LR_MIN) * (1 + np.cos(np.pi * k / CYCLE_LEN))
        for group in sgd.param_groups:
            group["lr"] = lr
        pick = torch.randint(0, n_tr, (BATCH,))
        loss = loss_fn(model(num[pick], cat[pick]), target[pick])
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        step += 1
        if step % 20 == 0:
            print(f"cycle {cycle + 1} step {step:4d} lr {lr:.4f} loss {loss.item():.4f}")
    snapshot = copy.deepcopy(model).eval()
    members.append(snapshot)
    with torch.no_grad():
        preds = [m(num[n_tr:], cat[n_tr:]) for m in members]
    print(
        f"== snapshot {cycle + 1}: single rmse {rmse(preds[-1], target[n_tr:]):.4f}  "
        f"ensemble rmse {rmse(torch.stack(preds).mean(0), target[n_tr:]):.4f}"
    )

with torch.no_grad():
    final = torch.stack([m(num[n_tr:], cat[n_tr:]) for m in members]).mean(0)
err = (torch.exp(final * float(y_std)) / torch.exp(target[n_tr:] * float(y_std)) - 1).abs().median()
print(f"median relative price error {100 * err:.1f}%  (noise floor about 7%)")
