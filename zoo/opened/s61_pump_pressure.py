# expect: sick
# symptom: the validation error falls for about 100 steps, then the training loss jumps by orders of magnitude and goes to NaN or never gets good again
# axis: data
# cause: from the second export on some rows hold the -9999 code for a missing reading, which is fed to the network as a real value
# says: -?9999|sentinel|missing.?(value|reading|data|code)|placeholder|outlier|corrupt|bad (row|record|value|data)|(extreme|huge|absurd|out.of.range|unscaled).{0,40}(row|input|feature|value|batch|data)|(row|input|feature|batch|data).{0,40}(extreme|huge|absurd|out.of.range|far outside)
# onset_step: 96
# fix: replace readings below -9000 by the column's mean before they are scaled
# mended: fills the missing readings with the column mean of the first export
import os

import numpy as np
import torch
from torch import nn

MENDED = os.environ.get("MENDED") == "1"
rng = np.random.default_rng(71)
torch.manual_seed(71)

COLS = 14
w_true = rng.normal(size=(COLS, 6))


def export(n, gaps):
    base = rng.normal(size=(n, COLS))
    raw = base * 12 + 60
    target = np.tanh(base @ w_true).sum(1) + 0.05 * rng.normal(size=n)
    if gaps:
        lost = rng.random(n) < 0.03
        raw[lost, rng.integers(0, COLS, lost.sum())] = -9999.0
    return raw, target


def merge():
    parts = [export(64 * 95, False), export(64 * 300, True)]
    return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])


readings, pressure = merge()
mean, std = readings[: 64 * 95].mean(0), readings[: 64 * 95].std(0)
if MENDED:
    readings = np.where(readings < -9000, mean, readings)
X = torch.tensor((readings - mean) / std, dtype=torch.float32)
Y = torch.tensor(pressure, dtype=torch.float32).unsqueeze(1)
vr, vy = export(2000, False)
VX = torch.tensor((vr - mean) / std, dtype=torch.float32)
VY = torch.tensor(vy, dtype=torch.float32).unsqueeze(1)

net = nn.Sequential(nn.Linear(COLS, 96), nn.GELU(), nn.Linear(96, 96), nn.GELU(), nn.Linear(96, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
crit = nn.MSELoss()
for step in range(len(X) // 64):
    xb, yb = X[step * 64 : step * 64 + 64], Y[step * 64 : step * 64 + 64]
    loss = crit(net(xb), yb)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 25 == 0 or step == len(X) // 64 - 1:
        with torch.no_grad():
            print(f"step {step} train {loss.item():.4f} valid {crit(net(VX), VY).item():.4f}", flush=True)
