# expect: sick
# symptom: the forecaster is fine for months of data, then the loss jumps from 0.03 to tens of thousands in one step and the forecasts stay a thousand times worse
# axis: data
# cause: from a certain month on the sensor file holds the missing-value code -9999, which goes into inputs and targets as if it were a temperature
# says: (-?\s?9999|sentinel|missing[ -_](value|reading|measurement|data)|fill[ -_]?value|placeholder|(outlier|extreme|absurd|huge|invalid|corrupt\w*|bad|garbage|out[ -_]of[ -_](range|distribution)|abnormal|anomal\w*|very large)\w*.{0,50}(value|input|target|label|data|batch|sample|reading|row|feature|window|record)s?|(value|input|target|label|data|batch|sample|reading|row|feature|window|record)s?\b.{0,60}(outlier|extreme|absurd|huge|invalid|corrupt\w*|out[ -_]of[ -_](range|distribution)|abnormal|anomal\w*|far outside|times (larger|the usual|bigger)|distribution (shift|change)))
# onset_step: 595
# fix: treat -9999 as missing when reading the CSV (carry the last good reading forward)
# mended: readings below -900 are replaced by the last valid one
import csv
import math
import os
import random
import tempfile
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(8)
random.seed(8)
MENDED = os.environ.get("MENDED") == "1"
WINDOW, HORIZON, BATCH = 24, 6, 16
HOURS_PER_MONTH = 1100


def export_station(folder):
    """Hourly temperature and humidity, one CSV a month, as the logger exports them."""
    drift, hour = 0.0, 0
    for month in range(1, 13):
        with open(folder / f"station_{month:02d}.csv", "w", newline="") as f:
            out = csv.writer(f)
            out.writerow(["hour", "temp_c", "humidity"])
            for _ in range(HOURS_PER_MONTH):
                drift = 0.97 * drift + random.gauss(0, 0.35)
                temp = 14 + 6 * math.sin(2 * math.pi * hour / 24) + 3 * math.sin(2 * math.pi * hour / 168) + drift
                hum = 60 - 1.8 * (temp - 14) + random.gauss(0, 2)
                if month >= 10 and random.random() < 0.004:
                    temp = -9999.0
                out.writerow([hour, f"{temp:.2f}", f"{hum:.1f}"])
                hour += 1


def read_month(path):
    rows = []
    with open(path) as f:
        for r in csv.DictReader(f):
            temp = float(r["temp_c"])
            if MENDED and temp < -900:
                temp = rows[-1][0] if rows else 14.0
            rows.append([temp, float(r["humidity"])])
    return torch.tensor(rows)


class Scaler:
    def fit(self, x):
        self.mean, self.std = x.mean(0), x.std(0)
        return self

    def __call__(self, x):
        return (x - self.mean) / self.std


def batches(folder, scaler):
    for path in sorted(folder.glob("station_*.csv")):
        x = scaler(read_month(path))
        starts = list(range(len(x) - WINDOW - HORIZON))
        random.shuffle(starts)
        for i in range(0, len(starts) - BATCH + 1, BATCH):
            idx = starts[i : i + BATCH]
            past = torch.stack([x[s : s + WINDOW] for s in idx])
            future = torch.stack([x[s + WINDOW : s + WINDOW + HORIZON, 0] for s in idx])
            yield path.stem, past, future


class Forecaster(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.gru = nn.GRU(2, hidden, batch_first=True)
        self.head = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, HORIZON))

    def forward(self, x):
        _, h = self.gru(x)
        return x[:, -1:, 0] + self.head(h[-1])


def main():
    with tempfile.TemporaryDirectory() as tmp:
        folder = Path(tmp)
        export_station(folder)
        scaler = Scaler().fit(read_month(folder / "station_01.csv"))
        holdout = scaler(read_month(folder / "station_09.csv"))
        model = Forecaster()
        opt = torch.optim.Adam(model.parameters(), lr=3e-3)

        def skill():
            with torch.no_grad():
                s = range(0, len(holdout) - WINDOW - HORIZON, 5)
                past = torch.stack([holdout[i : i + WINDOW] for i in s])
                fut = torch.stack([holdout[i + WINDOW : i + WINDOW + HORIZON, 0] for i in s])
                return F.mse_loss(model(past), fut).item()

        step = 0
        for month, past, future in batches(folder, scaler):
            loss = F.mse_loss(model(past), future)
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            if step % 20 == 0:
                print(f"{month} step {step} mse {loss.item():.4f}")
            if step % 100 == 0:
                print(f"   september mse {skill():.4f}")
        print(f"end: september mse {skill():.4f}")


if __name__ == "__main__":
    main()
