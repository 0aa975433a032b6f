# expect: sick
# symptom: the loss falls to the variance of the target at once and stays; R2 is about 0
# axis: loss
# cause: predictions of shape (B, 1) meet targets of shape (B,) in a hand-written loss, the difference is broadcast to (B, B), and the net learns the mean
# says: broadcast|shape.{0,60}(mismatch|differ|\(B|unequal|not equal|disagree|\(n)|mismatch\w*.{0,30}shape|(missing|forgot\w*|needs?|without|no).{0,20}(un)?squeeze|\(?(B|N|batch)\w*, ?1\)?.{0,50}\(?(B|N|batch)\w*,? ?\)?|every prediction.{0,40}every target|(BxB|B x B|N ?x ?N|outer|pairwise) .{0,20}(difference|residual|error|loss)
# onset_step: 1
# fix: squeeze the prediction (or unsqueeze the target) so that both have shape (B,)
# mended: with MENDED=1 forward's output is squeezed before the loss
import csv
import os
import random
import tempfile

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
random.seed(4)
np.random.seed(4)
torch.manual_seed(4)

DISTRICTS = ["centre", "harbour", "north", "east", "hills", "campus"]


def write_rents(path, n):
    level = dict(zip(DISTRICTS, [1.5, 1.3, 0.8, 0.7, 1.1, 1.0]))
    with open(path, "w", newline="") as f:
        w = csv.writer(f)
        w.writerow(["district", "area", "rooms", "floor", "year", "balcony", "rent"])
        for _ in range(n):
            d = random.choice(DISTRICTS)
            area = random.uniform(20, 140)
            rooms = max(1, round(area / 28 + random.gauss(0, 0.6)))
            floor, year, balcony = random.randint(0, 9), random.randint(1900, 2022), random.random() < 0.4
            rent = (9 * area + 60 * rooms) * level[d] * (1 + 0.25 * ((year - 1961) / 61) ** 2) + 90 * balcony
            rent *= random.lognormvariate(0, 0.08)
            w.writerow([d, round(area, 1), rooms, floor, year, int(balcony), round(rent, 2)])


class RentTable:
    def __init__(self, path, stats=None):
        with open(path) as f:
            rows = list(csv.DictReader(f))
        self.district = torch.tensor([DISTRICTS.index(r["district"]) for r in rows])
        numbers = np.array([[float(r[c]) for c in ("area", "rooms", "floor", "year", "balcony")] for r in rows])
        target = np.log(np.array([float(r["rent"]) for r in rows]))
        self.stats = stats or (numbers.mean(0), numbers.std(0), target.mean(), target.std())
        m, s, tm, ts = self.stats
        self.numbers = torch.tensor((numbers - m) / s, dtype=torch.float32)
        self.target = torch.tensor((target - tm) / ts, dtype=torch.float32)

    def epochs(self, batch_size):
        order = torch.randperm(len(self.target))
        for i in range(0, len(order) - batch_size + 1, batch_size):
            j = order[i : i + batch_size]
            yield self.district[j], self.numbers[j], self.target[j]


class RentNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(len(DISTRICTS), 8)
        self.body = nn.Sequential(
            nn.Linear(13, 64),
            nn.BatchNorm1d(64),
            nn.SiLU(),
            nn.Dropout(0.05),
            nn.Linear(64, 32),
            nn.SiLU(),
            nn.Linear(32, 1),
        )

    def forward(self, district, numbers):
        return self.body(torch.cat([self.emb(district), numbers], 1))


def log_cosh(pred, target):
    err = pred - target
    return (err + torch.nn.functional.softplus(-2 * err) - np.log(2)).mean()


@torch.no_grad()
def r2(model, table):
    model.eval()
    pred = model(table.district, table.numbers).squeeze(1)
    model.train()
    return (1 - (pred - table.target).pow(2).mean() / table.target.var()).item()


def main():
    with tempfile.TemporaryDirectory() as folder:
        train_csv, test_csv = os.path.join(folder, "train.csv"), os.path.join(folder, "test.csv")
        write_rents(train_csv, 6400)
        write_rents(test_csv, 1000)
        train = RentTable(train_csv)
        test = RentTable(test_csv, train.stats)
    model = RentNet()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    step = 0
    for epoch in range(8):
        for district, numbers, target in train.epochs(64):
            pred = model(district, numbers)
            if MENDED:
                pred = pred.squeeze(1)
            loss = log_cosh(pred, target)
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            if step % 50 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}")
        print(f"epoch {epoch} test R2 {r2(model, test):.3f}", flush=True)


if __name__ == "__main__":
    main()
