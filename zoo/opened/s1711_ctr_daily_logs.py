# expect: sick
# symptom: the log loss falls to about 0.40, then jumps at one step into the hundreds, calms down over the next days but stays noisy and well above the old level
# axis: data
# cause: from day 6 on a part of the traffic (the new app release) logs dwell time in milliseconds while all earlier data and the normalisation use seconds: a feature is 1000 times too large
# says: millisecond|to seconds|\bms\b|units?\b|(1000|1e3|thousand).{0,60}(larger|scale|times|factor|x\b)|dwell.{0,80}(scale|range|magnitude|large|outlier|distribution|unnormali)|(scale|distribution|range|magnitude) (shift|change|jump).{0,80}(feature|input|numeric|data|batch|column)|(feature|input|numeric|column|data)s?\b.{0,80}(shift|drift|change[sd]? (of )?scale|different scale|out of range|outlier|huge|much larger|wrong scale)|(outlier|huge|extreme|corrupt|bad|unnormali[sz]ed)\w* (input|feature|value|batch|data|sample)
# onset_step: 400
# fix: convert dwell time of the new release to seconds before normalising
# mended: dwell time from the new release is divided by 1000 when the log is parsed
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(3)
rng = np.random.default_rng(3)

CARD = [2000, 800, 60, 24, 12]  # user, item, category, hour, country
DAYS, PER_DAY, BATCH = 9, 80, 256
W_USER = rng.normal(0, 0.7, (CARD[0], 4))
W_ITEM = rng.normal(0, 0.7, (CARD[1], 4))
B_CAT, B_HOUR = rng.normal(0, 0.5, CARD[2]), rng.normal(0, 0.3, CARD[3])


class LogReader:
    """replays one day of impressions; releases: 3 = old app, 4 = app rolled out on day index 5"""

    def raw(self, day, n):
        cat = np.stack([rng.zipf(1.3, n) % c if c > 100 else rng.integers(0, c, n) for c in CARD], 1)
        dwell = rng.gamma(2.0, 15.0, n)
        price = rng.lognormal(2.5, 0.5, n)
        age = rng.exponential(30.0, n)
        logit = (W_USER[cat[:, 0]] * W_ITEM[cat[:, 1]]).sum(1) + B_CAT[cat[:, 2]] + B_HOUR[cat[:, 3]]
        logit = logit + 0.07 * (dwell - 30) - 0.05 * (price - 14) - 0.02 * (age - 30)
        y = (rng.random(n) < 1 / (1 + np.exp(-2 * logit))).astype(np.float32)
        release = np.where((day >= 5) & (rng.random(n) < 0.45), 4, 3)
        dwell = np.where(release == 4, dwell * 1e3, dwell).round(1)
        return cat, np.stack([dwell, price, age], 1), release, y

    def parse(self, day, n):
        cat, num, release, y = self.raw(day, n)
        if MENDED:
            num[release == 4, 0] /= 1e3
        return cat, num.astype(np.float32), y


class DeepFM(nn.Module):
    def __init__(self, dim=12, n_num=3):
        super().__init__()
        self.emb = nn.ModuleList(nn.Embedding(c, dim) for c in CARD)
        self.lin = nn.ModuleList(nn.Embedding(c, 1) for c in CARD)
        for e in list(self.emb) + list(self.lin):
            nn.init.normal_(e.weight, std=0.05)
        self.mlp = nn.Sequential(
            nn.Linear(len(CARD) * dim + n_num, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1)
        )
        self.num = nn.Linear(n_num, 1)

    def forward(self, cat, num):
        e = torch.stack([m(cat[:, i]) for i, m in enumerate(self.emb)], 1)
        first = sum(m(cat[:, i]) for i, m in enumerate(self.lin)) + self.num(num)
        fm = 0.5 * (e.sum(1).pow(2) - e.pow(2).sum(1)).sum(-1, keepdim=True)
        return (first + fm + self.mlp(torch.cat([e.flatten(1), num], 1))).squeeze(-1)


reader = LogReader()
_, warm, _ = reader.parse(0, 20000)
MEAN, STD = torch.tensor(warm.mean(0)), torch.tensor(warm.std(0))
model = DeepFM()
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
step, t0 = 0, time.time()
for day in range(DAYS):
    cat, num, y = reader.parse(day, PER_DAY * BATCH)
    cat, num, y = torch.tensor(cat), (torch.tensor(num) - MEAN) / STD, torch.tensor(y)
    total = 0.0
    for k in range(PER_DAY):
        s = slice(k * BATCH, (k + 1) * BATCH)
        loss = F.binary_cross_entropy_with_logits(model(cat[s], num[s]), y[s])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        total += loss.item()
        if step % 20 == 0:
            print(f"day {day} step {step:4d} logloss {loss.item():.4f}")
        step += 1
    print(f"== day {day} progressive logloss {total / PER_DAY:.4f} ctr {y.mean():.3f} ({time.time() - t0:.1f}s)")
