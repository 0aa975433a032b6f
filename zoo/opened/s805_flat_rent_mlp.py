# expect: sick
# symptom: the regression network predicts the mean for every row; the RMSE stays at the standard deviation of the target (R2 about 0)
# axis: loss
# cause: predictions of shape (B, 1) minus targets of shape (B,) broadcast to a (B, B) matrix in the loss
# says: broadcast|shape.{0,30}(mismatch|differ|wrong|not match|do not|\(?b)|mismatch.{0,20}shape|squeeze|unsqueeze|\(?(b|n|batch), ?1\)?.{0,40}\(?(b|n|batch),? ?\)?|(b|n|batch) ?(x|×|by) ?(b|n|batch)
# onset_step: 1
# fix: squeeze the last dimension of the prediction before the loss
# mended: with MENDED=1 the model returns self.net(x).squeeze(-1)
import csv
import os
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(17)
COLUMNS = ["area", "rooms", "floor", "year", "distance_km", "balcony", "heating"]


def write_csv(path, n=6000, seed=17):
    rng = np.random.default_rng(seed)
    with open(path, "w", newline="") as f:
        w = csv.writer(f)
        w.writerow(COLUMNS + ["rent"])
        for _ in range(n):
            area = rng.uniform(20, 140)
            rooms = max(1, int(area // 25 + rng.integers(-1, 2)))
            floor = int(rng.integers(0, 12))
            year = int(rng.integers(1920, 2023))
            dist = rng.gamma(2.0, 3.0)
            balcony = int(rng.random() < 0.4)
            heating = int(rng.integers(0, 3))
            rent = 12 * area * np.exp(-dist / 15) + 60 * balcony + 4 * max(year - 1990, 0) + 25 * heating
            rent += 8 * floor * (year > 1970) + rng.normal(0, 40)
            w.writerow([f"{area:.1f}", rooms, floor, year, f"{dist:.2f}", balcony, heating, f"{rent:.2f}"])


class RentData(Dataset):
    def __init__(self, rows, stats=None):
        x, y = rows[:, :-1], rows[:, -1]
        self.stats = stats or (x.mean(0), x.std(0), y.mean(), y.std())
        xm, xs, ym, ys = self.stats
        self.x = torch.tensor((x - xm) / xs, dtype=torch.float32)
        self.y = torch.tensor((y - ym) / ys, dtype=torch.float32)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class RMSELoss(nn.Module):
    def __init__(self, eps=1e-8):
        super().__init__()
        self.eps = eps

    def forward(self, pred, target):
        return torch.sqrt(((pred - target) ** 2).mean() + self.eps)


class RentNet(nn.Module):
    def __init__(self, n_in, width=64, p=0.05):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(n_in, width),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Dropout(p),
            nn.Linear(width, width),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Dropout(p),
            nn.Linear(width, 1),
        )

    def forward(self, x):
        out = self.net(x)
        return out.squeeze(-1) if os.environ.get("MENDED") == "1" else out


class Trainer:
    def __init__(self, model, train, valid, lr=2e-3, batch_size=64):
        self.model = model
        self.train_loader = DataLoader(train, batch_size=batch_size, shuffle=True, drop_last=True)
        self.valid_loader = DataLoader(valid, batch_size=256)
        self.loss_fn = RMSELoss()
        self.opt = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=1e-4)
        self.step = 0

    def run_epoch(self):
        self.model.train()
        losses = []
        for x, y in self.train_loader:
            self.opt.zero_grad(set_to_none=True)
            loss = self.loss_fn(self.model(x), y)
            loss.backward()
            self.opt.step()
            self.step += 1
            losses.append(loss.item())
        return float(np.mean(losses))

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        pred, true = [], []
        for x, y in self.valid_loader:
            pred.append(self.model(x).numpy().ravel())
            true.append(y.numpy())
        pred, true = np.concatenate(pred), np.concatenate(true)
        return 1.0 - ((pred - true) ** 2).sum() / ((true - true.mean()) ** 2).sum()

    def fit(self, epochs):
        for epoch in range(1, epochs + 1):
            loss = self.run_epoch()
            print(f"epoch {epoch} step {self.step} train rmse {loss:.4f} valid R2 {self.validate():.4f}")


def main():
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "rents.csv")
        write_csv(path)
        table = np.loadtxt(path, delimiter=",", skiprows=1)
    order = np.random.default_rng(0).permutation(len(table))
    table = table[order]
    train = RentData(table[:5000])
    valid = RentData(table[5000:], stats=train.stats)
    Trainer(RentNet(len(COLUMNS)), train, valid).fit(epochs=6)


if __name__ == "__main__":
    main()
