# expect: sick
# symptom: the loss falls well for hundreds of steps, then turns round and climbs steadily until the end of the run
# axis: schedule
# cause: the linear decay was sized for fewer steps than the run has and is not clamped at zero, so the learning rate becomes negative and the optimizer ascends the loss
# says: (negative.{0,20}(lr|learning.?rate|step)|(lr|learning.?rate).{0,60}(negative|below (zero|0)|< ?0|sign)|gradient.?ascent|schedul\w*.{0,60}(past|beyond|outlives|overrun|runs? out|shorter than|total.?steps|not clamp\w*|unclamped|negative))
# onset_step: 602
# fix: clamp the factor with max(0, ...) or compute total_steps from len(loader)
# mended: total_steps comes from len(loader) when MENDED=1
import csv
import logging
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")

CONFIG = {"batch_size": 64, "epochs": 16, "lr": 2e-3, "accumulate": 2, "warmup": 40, "hidden": 96}


def write_csv(path, n, seed):
    rng = np.random.default_rng(seed)
    with open(path, "w", newline="") as f:
        w = csv.writer(f)
        w.writerow(["tenure", "monthly", "calls", "plan", "region", "churn"])
        for _ in range(n):
            tenure, monthly = rng.exponential(24), rng.normal(60, 20)
            calls, plan, region = rng.poisson(2), rng.integers(0, 4), rng.integers(0, 6)
            z = -0.06 * tenure + 0.04 * (monthly - 60) * (1 if plan < 2 else -1) + 0.7 * calls - 0.6
            z += 0.8 * np.sin(region) + 0.3 * rng.normal()
            w.writerow([f"{tenure:.2f}", f"{monthly:.2f}", calls, plan, region, int(z > 0)])


def read_csv(path):
    with open(path) as f:
        rows = list(csv.DictReader(f))
    num = np.array([[float(r["tenure"]), float(r["monthly"]), float(r["calls"])] for r in rows], np.float32)
    cat = np.array([[int(r["plan"]), int(r["region"])] for r in rows])
    y = np.array([float(r["churn"]) for r in rows], np.float32)
    return num, cat, y


class ChurnNet(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.plan, self.region = nn.Embedding(4, 4), nn.Embedding(6, 4)
        self.net = nn.Sequential(
            nn.Linear(11, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1)
        )

    def forward(self, num, cat):
        x = torch.cat([num, self.plan(cat[:, 0]), self.region(cat[:, 1])], 1)
        return self.net(x).squeeze(1)


def linear_schedule(opt, warmup, total):
    def factor(step):
        if step < warmup:
            return (step + 1) / warmup
        return (total - step) / (total - warmup)

    return torch.optim.lr_scheduler.LambdaLR(opt, factor)


def main(cfg):
    torch.manual_seed(2024)
    with tempfile.TemporaryDirectory() as tmp:
        tr, te = os.path.join(tmp, "train.csv"), os.path.join(tmp, "test.csv")
        write_csv(tr, 6400, 1)
        write_csv(te, 1000, 2)
        num, cat, y = read_csv(tr)
        tnum, tcat, ty = read_csv(te)
    mean, std = num.mean(0), num.std(0)
    train = TensorDataset(torch.from_numpy((num - mean) / std), torch.from_numpy(cat), torch.from_numpy(y))
    tnum, tcat, ty = torch.from_numpy((tnum - mean) / std), torch.from_numpy(tcat), torch.from_numpy(ty)
    loader = DataLoader(train, batch_size=cfg["batch_size"], shuffle=True)

    model = ChurnNet(cfg["hidden"])
    opt = torch.optim.AdamW(model.parameters(), lr=cfg["lr"])
    total_steps = 12 * len(train) // (cfg["batch_size"] * cfg["accumulate"])
    if os.environ.get("MENDED") == "1":
        total_steps = cfg["epochs"] * (len(loader) // cfg["accumulate"])
    sched = linear_schedule(opt, cfg["warmup"], total_steps)
    crit = nn.BCEWithLogitsLoss()

    updates = 0
    for epoch in range(cfg["epochs"]):
        losses = []
        for i, (xn, xc, yb) in enumerate(loader):
            loss = crit(model(xn, xc), yb)
            (loss / cfg["accumulate"]).backward()
            losses.append(loss.item())
            if (i + 1) % cfg["accumulate"] == 0:
                opt.step()
                opt.zero_grad()
                sched.step()
                updates += 1
        with torch.no_grad():
            logits = model(tnum, tcat)
            acc = ((logits > 0) == (ty > 0.5)).float().mean().item()
            vl = crit(logits, ty).item()
        logging.info("epoch %d updates %d loss %.4f test loss %.4f acc %.3f", epoch, updates, np.mean(losses), vl, acc)


if __name__ == "__main__":
    main(CONFIG)
