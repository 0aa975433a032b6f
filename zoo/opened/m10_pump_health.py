# expect: sick
# symptom: the loss falls a part of the way or begins far too high, and stays there
# axis: data
# cause: records are sorted by time first and made into a table as if sorted by entity, so each row mixes entities
# says: sort|order|reshap|mix
# onset_step: 0
# fix: sort by the key of the rows first
# mended: yes
import os
import random
from collections import namedtuple

import torch
from torch import nn

MENDED = os.environ.get("MENDED") == "1"

Reading = namedtuple("Reading", "pump tick pressure flow")
PUMPS, TICKS = 160, 32


def simulate(seed):
    rng = random.Random(seed)
    worn = [rng.random() < 0.5 for _ in range(PUMPS)]
    log = []
    for p in range(PUMPS):
        drift = 0.04 if worn[p] else 0.0
        for t in range(TICKS):
            pressure = 1.0 - drift * t + rng.gauss(0, 0.2)
            flow = 0.5 + 0.5 * drift * t + rng.gauss(0, 0.2)
            log.append(Reading(p, t, pressure, flow))
    rng.shuffle(log)
    return log, torch.tensor([float(w) for w in worn])


def per_pump_series(log):
    log = sorted(log, key=lambda r: (r.pump, r.tick) if MENDED else (r.tick, r.pump))
    series = []
    for start in range(0, len(log), TICKS):
        chunk = log[start : start + TICKS]
        series.append([[r.pressure, r.flow] for r in chunk])
    return torch.tensor(series)


class WearNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(2, 16, 5, padding=2),
            nn.ReLU(),
            nn.Conv1d(16, 16, 5, stride=2, padding=2),
            nn.ReLU(),
        )
        self.fc = nn.Linear(16 * (TICKS // 2), 1)

    def forward(self, x):
        h = self.conv(x.transpose(1, 2))
        return self.fc(h.flatten(1)).squeeze(1)


def main():
    torch.manual_seed(0)
    log, worn = simulate(seed=9)
    x = per_pump_series(log)
    train, held = slice(0, 120), slice(120, PUMPS)
    mean, std = x[train].mean((0, 1)), x[train].std((0, 1))
    x = (x - mean) / std
    net = WearNet()
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    bce = nn.BCEWithLogitsLoss()
    for step in range(60):
        rows = torch.randperm(120)[:40]
        loss = bce(net(x[train][rows]), worn[train][rows])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 15 == 14:
            with torch.no_grad():
                guess = (net(x[held]) > 0).float()
                acc = (guess == worn[held]).float().mean().item()
            print(f"{step + 1:3d}  loss {loss.item():.3f}  held-out acc {acc:.3f}")


if __name__ == "__main__":
    main()
