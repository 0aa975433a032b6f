# expect: sick
# symptom: the loss falls for nearly 300 steps, then jumps by orders of magnitude again and again, and the forecaster never gets back to its earlier error
# axis: data
# cause: from the eighth log file on, missing sensor readings are written as the sentinel -999.0 and go into inputs and targets as if they were measurements
# says: sentinel|-?\b999|(missing|placeholder|fill|invalid|corrupt\w*|bad|faulty|outlier|garbage|extreme|out.?of.?range|dropped.?out|drop.?out sensor)\W{1,3}(\w+\W+){0,4}(value|reading|measurement|sample|row|data|code|input|target|record|batch)|(sensor|input|target|data|value|reading)\w*.{0,60}(missing|corrupt|outlier|placeholder|invalid|out.?of.?range|extreme)
# onset_step: 288
# fix: treat the sentinel as missing when the file is read (carry the last valid reading forward)
# mended: read_file forward-fills readings at or below -900
import csv
import os
import random
import tempfile

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(21)
random.seed(21)
rng = np.random.default_rng(21)

N_FILES, PER_FILE = 12, 2700
CONTEXT, HORIZON, BATCH = 48, 6, 64


def write_logs(folder):
    """Temperature, humidity and load of a plant, one file per week of five-minute readings."""
    t = np.arange((N_FILES + 1) * PER_FILE)
    temp = 20 + 5 * np.sin(2 * np.pi * t / 288) + 1.5 * np.sin(2 * np.pi * t / 60)
    hum = 50 - 8 * np.sin(2 * np.pi * (t - 30) / 288)
    load = 100 + 30 * (np.sin(2 * np.pi * t / 96) > 0.2) + 10 * np.sin(2 * np.pi * t / 288)
    x = np.stack([temp, hum, load], 1) + rng.normal(0, [0.25, 0.6, 1.5], (len(t), 3))
    dead = np.zeros(len(t), bool)
    for _ in range(24):
        a = rng.integers(7 * PER_FILE, N_FILES * PER_FILE - 20)
        dead[a : a + rng.integers(2, 12)] = True
    dead[7 * PER_FILE + 10 : 7 * PER_FILE + 14] = True
    x[dead, 0] = -999.0
    for k in range(N_FILES + 1):
        with open(os.path.join(folder, f"week_{k:02d}.csv"), "w", newline="") as f:
            w = csv.writer(f)
            w.writerow(["temp", "humidity", "load"])
            for row in x[k * PER_FILE : (k + 1) * PER_FILE]:
                w.writerow([f"{v:.2f}" for v in row])


def read_file(folder, k):
    a = np.loadtxt(os.path.join(folder, f"week_{k:02d}.csv"), delimiter=",", skiprows=1, dtype=np.float32)
    if os.environ.get("MENDED") == "1":
        for i in range(1, len(a)):
            gap = a[i] <= -900
            a[i, gap] = a[i - 1, gap]
    return a


class Scaler:
    def __init__(self, a):
        self.mean, self.std = a.mean(0), a.std(0)

    def __call__(self, a):
        return torch.from_numpy((a - self.mean) / self.std)


def windows(series):
    w = series.unfold(0, CONTEXT + HORIZON, 1).transpose(1, 2)
    return w[:, :CONTEXT], w[:, CONTEXT:, 0]


class Forecaster(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(3, d, 5, padding=2),
            nn.ReLU(),
            nn.Conv1d(d, d, 5, padding=2, stride=2),
            nn.ReLU(),
            nn.Conv1d(d, d, 5, padding=2, stride=2),
            nn.ReLU(),
        )
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(d * CONTEXT // 4, 64), nn.ReLU(), nn.Linear(64, HORIZON))

    def forward(self, x):
        return self.head(self.conv(x.transpose(1, 2)))


def stream(folder, scaler):
    """The weeks in the order in which they were logged, windows shuffled within a week."""
    for k in range(N_FILES):
        x, y = windows(scaler(read_file(folder, k)))
        perm = torch.randperm(len(x))
        for i in range(0, len(x) - BATCH + 1, BATCH):
            idx = perm[i : i + BATCH]
            yield k, x[idx], y[idx]


@torch.no_grad()
def evaluate(model, x, y):
    model.eval()
    e = ((model(x) - y) ** 2).mean().item()
    model.train()
    return e


def main():
    with tempfile.TemporaryDirectory() as folder:
        write_logs(folder)
        scaler = Scaler(read_file(folder, 0))
        xt, yt = windows(scaler(read_file(folder, N_FILES)))
        xt, yt = xt[::2], yt[::2]
        model = Forecaster()
        opt = torch.optim.Adam(model.parameters(), lr=1e-3)
        last = 0
        for step, (k, x, y) in enumerate(stream(folder, scaler), 1):
            if k != last:
                print(f"-- week {last} done, test mse {evaluate(model, xt, yt):.4f}", flush=True)
                last = k
            loss = ((model(x) - y) ** 2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 20 == 0:
                print(f"step {step} loss {loss.item():.4f}")
        print(f"final test mse {evaluate(model, xt, yt):.4f}")


main()
