# expect: sick
# symptom: smooth training until the new shard joins at step 301, then loss spikes of 1e6 and more in some batches, and the forecast of all stations is worse afterwards
# axis: data
# cause: the readings of one station that comes with the new shard are in millivolt while all others are in volt, so its windows are 1000 times too large after normalisation
# says: \bunits?\b.*(mismatch|wrong|differ|mix|conver|inconsist|mv|milli|station|shard|sensor|volt)|(wrong|differ\w*|mix\w*|inconsistent).{0,12}units?\b|millivolt|\bmV\b|(input|feature|data|sample|row|window|reading|station|shard|series).{0,25}(scale|1000|magnitude|outlier|not.?normali|un.?normali|out.?of.?range|huge|extreme|corrupt)|(scale|1000|magnitude).{0,25}(shard|station|sample|row|feature|input|data|window|series|reading)|(un.?normali[sz]ed|outlier|out.?of.?range|corrupt|extreme|bad|huge).{0,20}(input|data|batch|sample|row|shard|feature|station|window|series)
# onset_step: 309
# fix: convert the station's readings by its unit field (divide by 1000) when the shard is loaded
# mended: no spikes after step 301; held-out MSE 0.018 (bare: spikes of 8e6, held-out MSE 0.24)
import math
import os

import numpy as np
import torch
import torch.nn as nn

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(8)
rs = np.random.RandomState(8)

WINDOW, BATCH, STEPS = 36, 48, 480


def station(name, n=1500, unit="V", period=24):
    t = np.arange(n)
    daily = rs.uniform(0.5, 1.0) * np.sin(2 * math.pi * t / period + rs.uniform(0, 6))
    slow = rs.uniform(0.2, 0.5) * np.sin(2 * math.pi * t / rs.uniform(90, 130) + rs.uniform(0, 6))
    ar = np.zeros(n)
    for i in range(2, n):
        ar[i] = 1.3 * ar[i - 1] - 0.5 * ar[i - 2] + rs.normal(0, 0.05)
    v = 3.3 + daily + slow + ar
    if unit == "mV":
        v = v * 1000.0
    return {"name": name, "unit": unit, "values": v.astype(np.float32)}


def read(st):
    v = st["values"]
    if MENDED and st["unit"] == "mV":
        v = v / 1000.0
    return torch.from_numpy((v - MEAN) / STD)


def windows(series, n):
    s = np.random.RandomState(n).randint(0, len(series) - WINDOW - 1, n)
    return torch.stack([series[i : i + WINDOW + 1] for i in s])


class Forecaster(nn.Module):
    def __init__(self, h=64):
        super().__init__()
        self.inp = nn.Linear(1, 32)
        self.rnn = nn.LSTM(32, h, num_layers=2, batch_first=True)
        self.out = nn.Linear(h, 1)

    def forward(self, x):
        h, _ = self.rnn(torch.relu(self.inp(x[..., None])))
        return self.out(h).squeeze(-1)


shard_a = [station(f"st{i:02d}") for i in range(10)]
shard_b = [station(f"st{i:02d}", unit="mV" if i == 13 else "V", period=12) for i in range(10, 20)]
held_out = [station(f"ev{i:02d}", period=24 if i < 3 else 12) for i in range(6)]
MEAN = np.float32(np.mean([s["values"].mean() for s in shard_a]))
STD = np.float32(np.mean([s["values"].std() for s in shard_a]))

test = torch.cat([windows(read(s), 64) for s in held_out])
model = Forecaster()
opt = torch.optim.Adam(model.parameters(), lr=2e-3)


def evaluate():
    with torch.no_grad():
        p = model(test[:, :-1])
        return (p - test[:, 1:]).pow(2).mean().item()


pool = [read(s) for s in shard_a]
for step in range(1, STEPS + 1):
    if step == 301:
        pool += [read(s) for s in shard_b]
    k = rs.randint(0, len(pool), 4)
    rows = []
    for j in k:
        starts = rs.randint(0, len(pool[j]) - WINDOW - 1, BATCH // 4)
        rows += [pool[j][i : i + WINDOW + 1] for i in starts]
    x = torch.stack(rows)
    loss = (model(x[:, :-1]) - x[:, 1:]).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 0 or step == 1:
        msg = f"step {step:4d}  mse {loss.item():.5f}"
        if step % 60 == 0:
            msg += f"  held-out {evaluate():.5f}"
        print(msg)
print(f"final held-out mse {evaluate():.5f}")
