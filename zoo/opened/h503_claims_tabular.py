# expect: healthy
# symptom: the features contain nan, the printed loss has high peaks and most batches are clipped (resembles bad rows and an unstable run)
# axis: data
# cause: healthy: missing values are replaced by 0 after scaling and marked in an extra column, the heavy-tailed target is learned with a Huber loss and clipping; a batch with large claims has a large loss by nature
# says: none
# onset_step: none
# fix: none
# mended: none
import csv
import logging
import math
import os
import random
import tempfile

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(message)s")
log = logging.getLogger(__name__)
torch.set_num_threads(1)
random.seed(6)
torch.manual_seed(6)

COLUMNS = ["age", "mileage", "power", "claims_before", "years_insured", "region_risk"]


def write_claims(path, n):
    with open(path, "w", newline="") as f:
        writer = csv.writer(f)
        writer.writerow(COLUMNS + ["amount"])
        for _ in range(n):
            age, mileage = random.uniform(18, 85), random.lognormvariate(9.4, 0.6)
            power, before = random.gauss(90, 25), min(9, int(random.expovariate(0.9)))
            years, region = random.uniform(0, 30), random.random()
            level = (
                4
                + 2.5 * (abs(age - 48) / 30) ** 2
                + 0.00018 * mileage
                + 0.8 * before
                + 3 * region * (power > 95)
                - 0.08 * years
            )
            amount = max(0.1, level + random.gauss(0, 0.4))
            if random.random() < 0.01:
                amount *= 5 + 10 * random.paretovariate(2.0)
            row = [age, mileage, power, before, years, region]
            row = ["" if random.random() < 0.06 else f"{v:.4f}" for v in row]
            writer.writerow(row + [f"{amount:.4f}"])


class Claims(Dataset):
    def __init__(self, path, scale=None):
        with open(path) as f:
            rows = list(csv.reader(f))[1:]
        table = torch.tensor([[float(v) if v else math.nan for v in r] for r in rows])
        self.x, self.y = table[:, :-1], table[:, -1]
        if scale is None:
            mean = self.x.nanmean(0)
            std = (self.x - mean).pow(2).nanmean(0).sqrt()
            scale = (mean, std)
        self.scale = scale

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class ClaimNet(nn.Module):
    def __init__(self, scale, width=64):
        super().__init__()
        self.register_buffer("mean", scale[0])
        self.register_buffer("std", scale[1])
        self.net = nn.Sequential(
            nn.Linear(2 * len(COLUMNS), width),
            nn.SiLU(),
            nn.LayerNorm(width),
            nn.Linear(width, width),
            nn.SiLU(),
            nn.Linear(width, 1),
        )

    def forward(self, raw):
        missing = raw.isnan()
        x = ((raw - self.mean) / self.std).masked_fill(missing, 0.0)
        return self.net(torch.cat([x, missing.float()], 1)).squeeze(1)


@torch.no_grad()
def median_error(model, data):
    return (model(data.x) - data.y).abs().median().item()


def main():
    with tempfile.TemporaryDirectory() as folder:
        train_path, test_path = os.path.join(folder, "train.csv"), os.path.join(folder, "test.csv")
        write_claims(train_path, 9600)
        write_claims(test_path, 1500)
        train = Claims(train_path)
        test = Claims(test_path, train.scale)
    log.info(
        "missing values: %.1f%%, largest amount %.0f, median %.2f",
        100 * train.x.isnan().float().mean().item(),
        train.y.max().item(),
        train.y.median().item(),
    )
    model = ClaimNet(train.scale)
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    decay = torch.optim.lr_scheduler.ExponentialLR(opt, gamma=0.75)
    huber = nn.HuberLoss(delta=1.0)
    loader = DataLoader(train, batch_size=96, shuffle=True, num_workers=2)
    step = 0
    for epoch in range(1, 7):
        for raw, amount in loader:
            loss = huber(model(raw), amount)
            opt.zero_grad()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            opt.step()
            step += 1
            if step % 20 == 0:
                log.info("epoch %d step %d huber %.4f grad norm %.2f", epoch, step, loss.item(), norm.item())
        decay.step()
        log.info(
            "epoch %d median error %.4f (a constant guess: %.4f)",
            epoch,
            median_error(model, test),
            (test.y - train.y.median()).abs().median().item(),
        )


if __name__ == "__main__":
    main()
