# expect: sick
# symptom: three rows of the data file hold NaN (empty cells), used as they are
# axis: data
# cause: missing values: rows of the data file hold NaN
# says: nan.{0,40}(batch|data|row|input|file)|(batch|data|row|input|file).{0,60}(nan|NaN)|missing|non-?finite
# onset_step: 122
# fix: clean or mask the rows
# mended: q02_rent_table.py
# Rental price model on a table that lies on disk as csv.
import os
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(3)


def write_table(path, rows=19000):
    r = np.random.RandomState(3)
    area = r.gamma(6.0, 12.0, rows)
    rooms = np.clip(np.round(area / 28 + r.randn(rows) * 0.6), 1, 8)
    dist = r.exponential(4.0, rows)
    year = r.randint(1900, 2023, rows).astype(float)
    floor = r.randint(0, 12, rows).astype(float)
    energy = r.normal(140, 40, rows)
    price = 9.5 * area + 60 * rooms - 35 * dist + 0.02 * (year - 1950) ** 2 + 8 * floor
    price = price - 0.7 * energy + 25 * np.sin(floor) * rooms + 30 * r.randn(rows)
    gaps = np.zeros((rows, 6), dtype=bool)
    gaps[[9812, 11040, 13377], [5, 3, 5]] = True  # a few certificates were not filed
    with open(path, "w") as fh:
        fh.write("area,rooms,dist,year,floor,energy,price\n")
        table = np.stack([area, rooms, dist, year, floor, energy], 1)
        for feats, g, p in zip(table, gaps, price):
            cells = ["" if miss else f"{v:.3f}" for v, miss in zip(feats, g)]
            fh.write(",".join(cells) + f",{p:.2f}\n")


def load_table(path):
    raw = np.genfromtxt(path, delimiter=",", skip_header=1)
    X, y = raw[:, :6], raw[:, 6:]
    lo, hi = np.nanpercentile(X, [1, 99], axis=0)
    X = (X - np.nanmean(X, axis=0)) / (hi - lo)
    y = (y - y.mean()) / y.std()
    return torch.tensor(X, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)


def build(n_in):
    return nn.Sequential(
        nn.Linear(n_in, 256),
        nn.LayerNorm(256),
        nn.SiLU(),
        nn.Linear(256, 256),
        nn.LayerNorm(256),
        nn.SiLU(),
        nn.Linear(256, 256),
        nn.SiLU(),
        nn.Linear(256, 1),
    )


def main():
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "rent.csv")
        write_table(path)
        X, y = load_table(path)
    loader = DataLoader(TensorDataset(X, y), batch_size=80, shuffle=False)
    net = build(X.shape[1])
    optim = torch.optim.Adam(net.parameters(), lr=1e-3)
    crit = nn.SmoothL1Loss()
    it = 0
    for epoch in range(2):
        for features, target in loader:
            optim.zero_grad(set_to_none=True)
            loss = crit(net(features), target)
            loss.backward()
            optim.step()
            if it % 25 == 0:
                print("it", it, "loss", round(loss.item(), 4))
            it += 1
    print("done", it, loss.item())


if __name__ == "__main__":
    main()
