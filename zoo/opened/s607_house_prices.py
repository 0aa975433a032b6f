# expect: sick
# symptom: the regression loss stops at the variance of the target, R2 is about 0 and the model predicts nearly the same price for every house
# axis: loss
# cause: predictions have shape (B, 1) and targets (B,), so the subtraction in the loss broadcasts to a B x B matrix and every prediction is compared with every target
# says: broadcast|shape.{0,60}(mismatch|differ|\(?B|\(?N)|(mismatch|differ\w*|incompatible).{0,40}shape|(squeeze|unsqueeze|extra dim|trailing dim)|(B|N|batch) ?(x|×|by) ?(B|N|batch) (matrix|difference|pair)|every prediction.{0,40}every target|all pairs
# onset_step: 1
# fix: squeeze the last dimension of the prediction
# mended: forward returns the output squeezed to (B,)
import csv
import math
import os
import random
import tempfile

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
random.seed(5)
np.random.seed(5)
torch.manual_seed(5)

DISTRICTS = ["north", "south", "harbour", "hill", "centre"]
BASE = dict(zip(DISTRICTS, [0.0, -0.2, 0.35, 0.15, 0.5]))


def write_listing(path, n):
    with open(path, "w", newline="") as f:
        w = csv.writer(f)
        w.writerow(["area", "rooms", "year", "floor", "district", "price"])
        for _ in range(n):
            area = random.lognormvariate(4.4, 0.35)
            rooms = max(1, round(area / 25 + random.gauss(0, 0.7)))
            year, floor = random.randint(1900, 2022), random.randint(0, 9)
            d = random.choice(DISTRICTS)
            logp = 3.2 + 0.9 * math.log(area) + 0.03 * rooms + BASE[d] + 0.0000250 * (year - 1950) ** 2
            logp += 0.02 * floor * (d == "harbour") + random.gauss(0, 0.08)
            w.writerow([f"{area:.1f}", rooms, year, floor, d, f"{math.exp(logp):.1f}"])


def read_listing(path):
    num, cat, price = [], [], []
    with open(path, newline="") as f:
        for r in csv.DictReader(f):
            num.append([float(r["area"]), float(r["rooms"]), float(r["year"]), float(r["floor"])])
            cat.append(DISTRICTS.index(r["district"]))
            price.append(float(r["price"]))
    return np.array(num, np.float32), np.array(cat), np.array(price, np.float32)


class PriceNet(nn.Module):
    def __init__(self, n_num, n_cat, hidden=64):
        super().__init__()
        self.emb = nn.Embedding(n_cat, 4)
        self.net = nn.Sequential(
            nn.Linear(n_num + 4, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1)
        )

    def forward(self, num, cat):
        out = self.net(torch.cat([num, self.emb(cat)], 1))
        if os.environ.get("MENDED") == "1":
            return out.squeeze(-1)
        return out


def weighted_mse(pred, target, weight=None):
    """Squared error; recent sales may be given more weight."""
    err = (pred - target) ** 2
    if weight is not None:
        err = err * weight
    return err.mean()


def batches(n, size):
    perm = torch.randperm(n)
    for i in range(0, n - size + 1, size):
        yield perm[i : i + size]


def main():
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "listing.csv")
        write_listing(path, 6000)
        num, cat, price = read_listing(path)
    cut = 5000
    mean, std = num[:cut].mean(0), num[:cut].std(0)
    X = torch.from_numpy((num - mean) / std)
    C = torch.from_numpy(cat)
    logp = np.log(price)
    y_mean, y_std = logp[:cut].mean(), logp[:cut].std()
    Y = torch.from_numpy((logp - y_mean) / y_std)

    model = PriceNet(4, len(DISTRICTS))
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=780)
    step = 0
    for epoch in range(10):
        for idx in batches(cut, 64):
            loss = weighted_mse(model(X[idx], C[idx]), Y[idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            step += 1
            if step % 100 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
        with torch.no_grad():
            pred = model(X[cut:], C[cut:]).reshape(-1)
        err = ((pred - Y[cut:]) ** 2).mean() / Y[cut:].var()
        euro = np.exp(pred.numpy() * y_std + y_mean)
        mape = np.mean(np.abs(euro - price[cut:]) / price[cut:])
        print(
            f"epoch {epoch}: R2 {1 - err.item():.3f}  mean abs error {100 * mape:.1f}%  spread {pred.std().item():.3f}"
        )


main()
