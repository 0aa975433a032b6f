# expect: sick
# symptom: training runs well for about a hundred steps, then loss and all weights are NaN
# axis: data
# cause: one payment row is a refund with a negative amount, and log1p of it is NaN
# says: (log1p|\blog\b|logarithm|negative|refund|invalid|bad|corrupt|nan|non-?finite|not finite|missing).{0,80}(row|sample|record|feature|input|amount|batch|example|data|entry|value)|(row|sample|record|feature|input|amount|batch|example|data|entry|value)s?.{0,80}(negative|refund|corrupt|nan\b|non-?finite|not finite|log1p|invalid|bad)
# onset_step: 113
# fix: drop the rows with an amount below zero
# mended: MENDED=1
import os

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(4)


def export_table(n=30000, seed=4):
    g = np.random.default_rng(seed)
    table = {
        "amount": np.round(g.lognormal(3.4, 1.1, n), 2),
        "age_days": g.integers(1, 3000, n).astype(float),
        "n_previous": g.poisson(6, n).astype(float),
        "hour": g.integers(0, 24, n).astype(float),
        "country": g.integers(0, 12, n),
    }
    risk = (
        0.9 * (np.log(table["amount"] + 1) - 3.4)
        - 0.5 * (np.log(table["age_days"]) - 6)
        + 0.7 * ((table["hour"] < 5) - 0.2)
        + np.linspace(-1, 1, 12)[table["country"]]
        - 0.8
    )
    table["fraud"] = (g.random(n) < 1 / (1 + np.exp(-2 * risk))).astype(float)
    table["amount"][14377] = -42.5
    return table


class Payments(Dataset):
    def __init__(self, table):
        self.table = table
        self.rows = np.arange(len(table["amount"]))
        if os.environ.get("MENDED") == "1":
            self.rows = self.rows[table["amount"] >= 0]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        r, t = self.rows[i], self.table
        with np.errstate(invalid="ignore"):
            amount = np.log1p(t["amount"][r])
        numbers = [amount - 3.4, np.log(t["age_days"][r]) - 7, t["n_previous"][r] / 6 - 1, t["hour"][r] / 12 - 1]
        return (
            torch.tensor(numbers, dtype=torch.float32),
            int(t["country"][r]),
            torch.tensor(t["fraud"][r], dtype=torch.float32),
        )


class FraudNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.country = nn.Embedding(12, 6)
        self.body = nn.Sequential(nn.Linear(10, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.1))
        self.block = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 64))
        self.out = nn.Linear(64, 1)

    def forward(self, numbers, country):
        h = self.body(torch.cat([numbers, self.country(country)], 1))
        return self.out(h + self.block(h)).squeeze(1)


def main():
    loader = DataLoader(Payments(export_table()), batch_size=128, shuffle=False)  # in order of time
    net = FraudNet()
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3)
    loss_fn = nn.BCEWithLogitsLoss()
    step = 0
    for epoch in range(2):
        seen, total = 0, 0.0
        for numbers, country, fraud in loader:
            loss = loss_fn(net(numbers, country), fraud)
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            seen, total = seen + len(fraud), total + loss.item() * len(fraud)
            if step % 20 == 0:
                print(f"step {step} loss {loss.item():.4f} mean {total / seen:.4f}")
        print(f"epoch {epoch}: {total / seen:.4f}")


if __name__ == "__main__":
    main()
