# expect: sick
# symptom: the loss is fine for most of the run, then becomes nan and stays nan
# axis: data
# cause: the CSV has blank temperature cells (a sensor outage) which are read as NaN and go into the model unfilled
# says: (nan|non.?finite|missing|blank|empty|invalid|corrupt\w*|gap)s?\W+(\w+\W+){0,4}(inputs?|features?|data\w*|csv|cells?|columns?|sensor|readings?|temperatures?|windows?)\b|(inputs?|features?|data\w*|csv|cells?|columns?|batch|rows?|samples?|windows?|temperatures?)\W+(\w+\W+){0,2}(contain|has|have|had|hold|carr|with|is|are|was|were|includ|read)\w*\W+(\w+\W+){0,3}(nan|non.?finite|missing|blank|empty|invalid|corrupt)(?!\W+loss)
# onset_step: 601
# fix: fill the missing cells (for example by interpolation) before the windows are made
# mended: with MENDED=1 the loader interpolates over the missing cells
import csv
import math
import os
import random
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
random.seed(3)
np.random.seed(3)
torch.manual_seed(3)

HOURS = 46000
WINDOW = 48
STRIDE = 2


def write_csv(path):
    """Hourly load of a small town with outside temperature."""
    temp_ar, load_ar = 0.0, 0.0
    with open(path, "w", newline="") as f:
        w = csv.writer(f)
        w.writerow(["hour", "temperature", "load_mw"])
        for t in range(HOURS):
            temp_ar = 0.97 * temp_ar + random.gauss(0, 0.5)
            load_ar = 0.8 * load_ar + random.gauss(0, 0.4)
            season = math.cos(2 * math.pi * t / 8760)
            temp = 12 - 9 * season + 4 * math.sin(2 * math.pi * (t % 24 - 9) / 24) + temp_ar
            load = 40 + 10 * math.sin(2 * math.pi * (t % 24 - 7) / 24) + 0.6 * abs(temp - 17) + load_ar
            cell = f"{temp:.2f}"
            if 38500 <= t < 38509:
                cell = ""
            w.writerow([t, cell, f"{load:.2f}"])


def read_csv(path):
    rows = np.genfromtxt(path, delimiter=",", skip_header=1)
    temp, load = rows[:, 1], rows[:, 2]
    if os.environ.get("MENDED") == "1":
        ok = ~np.isnan(temp)
        temp = np.interp(np.arange(len(temp)), np.flatnonzero(ok), temp[ok])
    hour = np.arange(len(temp)) % 24
    feats = np.stack([temp, load, np.sin(2 * np.pi * hour / 24), np.cos(2 * np.pi * hour / 24)], 1)
    first_year = feats[:8760]
    mean, std = first_year.mean(0), first_year.std(0)
    return torch.tensor((feats - mean) / std, dtype=torch.float32), float(std[1])


class Windows(Dataset):
    def __init__(self, series):
        self.series = series

    def __len__(self):
        return (len(self.series) - WINDOW - 1) // STRIDE

    def __getitem__(self, i):
        s = i * STRIDE
        return self.series[s : s + WINDOW], self.series[s + WINDOW, 1]


class Forecaster(nn.Module):
    def __init__(self, n_in=4, hidden=32):
        super().__init__()
        self.rnn = nn.GRU(n_in, hidden, batch_first=True)
        self.head = nn.Sequential(nn.Linear(hidden, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x):
        h, _ = self.rnn(x)
        return self.head(h[:, -1]).squeeze(-1)


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "load.csv")
        write_csv(path)
        series, load_std = read_csv(path)
    n_test = 1000
    train, test = Windows(series[:-n_test]), Windows(series[-n_test:])
    # walk through the years in order, as the deployed model will see them
    loader = DataLoader(train, batch_size=32, shuffle=False)
    model = Forecaster()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    loss_fn = nn.MSELoss()
    total = 0.0
    for step, (x, y) in enumerate(loader, 1):
        loss = loss_fn(model(x), y)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        total += loss.item()
        if step % 50 == 0:
            print(f"step {step:4d} of {len(loader)}  mse {total / 50:.4f}", flush=True)
            total = 0.0
    model.eval()
    with torch.no_grad():
        x, y = map(torch.stack, zip(*[test[i] for i in range(len(test))]))
        mae = (model(x) - y).abs().mean().item() * load_std
        naive = (x[:, -1, 1] - y).abs().mean().item() * load_std
    print(f"test MAE {mae:.3f} MW   (last value as forecast: {naive:.3f} MW)")


if __name__ == "__main__":
    main()
