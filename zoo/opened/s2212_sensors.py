# expect: sick
# symptom: forecast error falls a bit, then stays on a plateau far above the noise floor and hardly beats the naive forecast; nothing explodes
# axis: precision
# cause: absolute unix timestamps are stored in float32, whose resolution near 1.7e9 is 128 s, before they are differenced, so the time gaps between readings are rounded to 0 or 128 s and carry no information
# says: (unix|epoch|time ?-?stamp|timestamps?|seconds|absolute time|\bclock\b|time gaps?|delta|\bdt\b|intervals?).{0,200}(float ?-?32|single[- ]precision|fp32|precision|resolution|round|quanti[sz]|granularity|mantissa|24[- ]bit|128 ?s)|(float ?-?32|single[- ]precision|fp32|precision|resolution|round|quanti[sz]|mantissa|24[- ]bit|cancellation).{0,200}(unix|epoch seconds|time ?-?stamp|timestamps?|seconds|absolute time|time gaps?|time delta|\bdt\b|intervals?)
# onset_step: 1
# fix: subtract each series' start time in double precision before the cast to float32
# mended: yes
"""Irregularly sampled gas-sensor readings; a GRU forecasts the next reading.

Each sensor relaxes towards its own baseline; after every reading the rig applies
a known dose.  The gateway polls at irregular times (unix seconds with fraction).
"""

import math
import os

import numpy as np
import torch
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR

torch.set_num_threads(1)
torch.manual_seed(8)
MENDED = os.environ.get("MENDED") == "1"

SERIES, LENGTH = 3000, 28
CAMPAIGN_START = 1_714_521_600.0


def record(g):
    t = CAMPAIGN_START + g.uniform(0, 20 * 86400)
    tau = g.uniform(45, 55)
    base = g.normal(0, 0.3)
    level = base + g.uniform(-2.0, 2.0)
    rows = []
    for _ in range(LENGTH):
        dose = g.uniform(-2.5, 2.5)
        rows.append((t, level + 0.03 * g.normal(), dose))
        gap = g.uniform(5, 110)
        t += gap
        level = base + (level + dose - base) * math.exp(-gap / tau)
    return rows


def record_all(n, seed):
    g = np.random.default_rng(seed)
    return [record(g) for _ in range(n)]


def to_batch(records):
    if MENDED:
        records = [[(t - r[0][0], v, d) for t, v, d in r] for r in records]
    rows = torch.tensor(records, dtype=torch.float32)
    stamps, values, doses = rows.unbind(-1)
    gaps = (stamps[:, 1:] - stamps[:, :-1]) / 60.0
    feats = torch.stack([values[:, :-1], doses[:, :-1], gaps], -1)
    return feats, values[:, 1:]


class Forecaster(nn.Module):
    def __init__(self, hid=64):
        super().__init__()
        self.inp = nn.Sequential(nn.Linear(3, hid), nn.GELU(), nn.Linear(hid, hid))
        self.cell = nn.GRU(hid, hid, batch_first=True)
        self.out = nn.Sequential(nn.Linear(hid + 3, hid), nn.GELU(), nn.Linear(hid, 1))

    def forward(self, feats):
        h, _ = self.cell(self.inp(feats))
        return feats[..., 0] + self.out(torch.cat([h, feats], -1)).squeeze(-1)


def main():
    train, test = record_all(SERIES, 1), record_all(300, 2)
    tx, ty = to_batch(test)
    naive = nn.functional.mse_loss(tx[..., 0], ty).item()
    net = Forecaster()
    steps, bs = 600, 64
    opt = torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=1e-4)
    sched = OneCycleLR(opt, 4e-3, total_steps=steps)
    pick = np.random.default_rng(3)
    for it in range(1, steps + 1):
        x, y = to_batch([train[i] for i in pick.integers(0, SERIES, bs)])
        loss = nn.functional.mse_loss(net(x), y)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        sched.step()
        if it % 30 == 0:
            with torch.no_grad():
                te = nn.functional.mse_loss(net(tx), ty).item()
            print(f"iter {it:3d} train {loss.item():.4f} test {te:.4f} (naive {naive:.4f})")


if __name__ == "__main__":
    main()
