# expect: healthy
# symptom: resembles a model that does not learn and bad data: the loss moves from 0.69 to only about 0.67 and stays flat, the CSV has missing cells
# axis: none
# cause: healthy: the labels are noisy, so the flat loss is the irreducible one (the AUC is close to the best possible); the missing cells are imputed and flagged before training
# says: none
# onset_step: none
# fix: none
# mended: none
import csv
import os
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
FEATURES = ["age", "tenure", "calls", "spend", "tickets", "discount"]


def make_csv(path, n=20000, seed=12):
    rng = np.random.default_rng(seed)
    raw = np.column_stack(
        [
            rng.uniform(18, 80, n),
            rng.exponential(24, n),
            rng.poisson(3, n),
            rng.lognormal(3.5, 0.6, n),
            rng.poisson(0.8, n),
            rng.random(n) < 0.3,
        ]
    ).astype(float)
    z = (
        -0.012 * np.minimum(raw[:, 1], 60)
        + 0.12 * raw[:, 2]
        + 0.25 * raw[:, 4]
        - 0.35 * raw[:, 5]
        + 0.3 * (raw[:, 3] > 50) * (raw[:, 0] < 35)
        - 0.25
    )
    p = 1 / (1 + np.exp(-1.2 * z))
    y = (rng.random(n) < p).astype(int)
    missing = rng.random(raw.shape) < 0.06
    with open(path, "w", newline="") as f:
        w = csv.writer(f)
        w.writerow(FEATURES + ["churn"])
        for row, miss, label in zip(raw, missing, y):
            w.writerow(["" if m else f"{v:.3f}" for v, m in zip(row, miss)] + [label])
    return y, p


def load(path):
    table = np.genfromtxt(path, delimiter=",", skip_header=1)
    x, y = table[:, :-1], table[:, -1]
    hole = np.isnan(x)
    mean, std = np.nanmean(x[:16000], 0), np.nanstd(x[:16000], 0)
    x = np.clip((x - mean) / std, -4, 4)
    x[hole] = 0.0
    return np.hstack([x, hole]).astype(np.float32), y.astype(np.float32)


def auc(score, y):
    rank = np.empty(len(score))
    rank[np.argsort(score)] = np.arange(1, len(score) + 1)
    pos = y > 0.5
    return (rank[pos].sum() - pos.sum() * (pos.sum() + 1) / 2) / (pos.sum() * (~pos).sum())


def main():
    torch.manual_seed(12)
    path = os.path.join(tempfile.mkdtemp(), "churn.csv")
    labels, true_p = make_csv(path)
    x, y = load(path)
    train = TensorDataset(torch.from_numpy(x[:16000]), torch.from_numpy(y[:16000]))
    loader = DataLoader(train, batch_size=128, shuffle=True, drop_last=True)
    vx, vy = torch.from_numpy(x[16000:]), y[16000:]
    best_p = true_p[16000:]
    bayes = -(vy * np.log(best_p) + (1 - vy) * np.log(1 - best_p)).mean()
    print(f"churn rate {y.mean():.3f}  loss of the generating model {bayes:.4f}  its AUC {auc(best_p, vy):.4f}")

    model = nn.Sequential(
        nn.Linear(x.shape[1], 48), nn.SiLU(), nn.Dropout(0.2), nn.Linear(48, 24), nn.SiLU(), nn.Linear(24, 1)
    )
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4, nesterov=True)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=0.05, total_steps=5 * len(loader))
    criterion = nn.BCEWithLogitsLoss()
    step = 0
    for epoch in range(5):
        model.train()
        total = 0.0
        for bx, by in loader:
            loss = criterion(model(bx).squeeze(1), by)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            total += loss.item()
            step += 1
            if step % 60 == 0:
                print(f"step {step} loss {loss.item():.4f}")
        model.eval()
        with torch.no_grad():
            logit = model(vx).squeeze(1)
        vloss = criterion(logit, torch.from_numpy(vy)).item()
        print(f"epoch {epoch} train {total / len(loader):.4f} valid {vloss:.4f} AUC {auc(logit.numpy(), vy):.4f}")


if __name__ == "__main__":
    main()
