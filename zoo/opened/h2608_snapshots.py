# expect: healthy
# symptom: loss jumps up every 150 steps and comes down again (resembles instability or a broken schedule)
# axis: schedule
"""Snapshot ensemble for a tabular credit-style problem: warm restarts, one snapshot per valley."""

import copy

import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)

CYCLE = 150
CYCLES = 5
PEAK, FLOOR = 0.25, 1e-4


def make_table(n, seed):
    rng = np.random.RandomState(seed)
    num = rng.randn(n, 16)
    num[:, 3] = np.exp(0.5 * num[:, 3])
    job = rng.randint(0, 12, n)
    region = rng.randint(0, 8, n)
    w = np.random.RandomState(0)
    job_eff, reg_slope = w.randn(12), w.randn(8)
    z = (
        1.2 * np.sin(2 * num[:, 0])
        + num[:, 1] * num[:, 2]
        + job_eff[job]
        + reg_slope[region] * num[:, 4]
        - 0.5 * (num[:, 5] ** 2 - 1)
        + 0.7 * np.log(num[:, 3])
    )
    y = (rng.rand(n) < 1 / (1 + np.exp(-2.2 * z))).astype(np.float32)
    mu, sd = num.mean(0), num.std(0)
    return (
        torch.tensor((num - mu) / sd, dtype=torch.float32),
        torch.tensor(np.stack([job, region], 1)),
        torch.tensor(y),
    )


class ResidualTab(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.job, self.region = nn.Embedding(12, 6), nn.Embedding(8, 6)
        self.first = nn.Linear(28, width)
        self.body = nn.ModuleList()
        for _ in range(3):
            self.body.append(
                nn.Sequential(
                    nn.BatchNorm1d(width), nn.Linear(width, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, width)
                )
            )
        self.last = nn.Sequential(nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, num, cat):
        h = self.first(torch.cat([num, self.job(cat[:, 0]), self.region(cat[:, 1])], 1))
        for b in self.body:
            h = h + b(h)
        return self.last(h).squeeze(1)


def auc(score, y):
    order = score.argsort()
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order))
    pos = y > 0.5
    n1, n0 = pos.sum().item(), (~pos).sum().item()
    return (rank[pos].double().sum().item() - n1 * (n1 - 1) / 2) / (n1 * n0)


def cosine_cycle(step):
    frac = (step % CYCLE) / CYCLE
    return FLOOR + 0.5 * (PEAK - FLOOR) * (1 + np.cos(np.pi * frac))


torch.manual_seed(2)
num, cat, y = make_table(30000, 1)
v_num, v_cat, v_y = make_table(6000, 2)
net = ResidualTab()
opt = torch.optim.SGD(net.parameters(), lr=PEAK, momentum=0.9, weight_decay=2e-4, nesterov=True)
bce = nn.BCEWithLogitsLoss()
snapshots = []
recent = []
for step in range(CYCLE * CYCLES):
    for group in opt.param_groups:
        group["lr"] = cosine_cycle(step)
    idx = torch.randint(0, len(y), (400,))
    loss = bce(net(num[idx], cat[idx]), y[idx])
    opt.zero_grad()
    loss.backward()
    opt.step()
    recent.append(loss.item())
    if (step + 1) % 25 == 0:
        print("step %4d  loss %.4f  lr %.4f" % (step + 1, np.mean(recent[-25:]), opt.param_groups[0]["lr"]))
    if (step + 1) % CYCLE == 0:
        snap = copy.deepcopy(net).eval()
        snapshots.append(snap)
        with torch.no_grad():
            outs = [s(v_num, v_cat).sigmoid() for s in snapshots]
        print(
            "   snapshot %d  auc %.4f   ensemble auc %.4f" % (len(snapshots), auc(outs[-1], v_y), auc(sum(outs), v_y))
        )
