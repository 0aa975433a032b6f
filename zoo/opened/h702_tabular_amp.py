# expect: healthy
# symptom: resembles a loss scale collapse: the first steps have infinite gradients and are skipped while the scale falls
# axis: precision
# cause: GradScaler begins with a very high scale and finds a fitting one within some skipped steps; afterwards it is stable and the model learns
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

torch.set_num_threads(1)
torch.manual_seed(2)

COLUMNS = ["age", "income", "balance", "tenure", "region", "product", "churn"]


def write_customers(path, n=9000):
    rng = np.random.default_rng(2)
    age = rng.uniform(18, 85, n)
    income = rng.lognormal(10.4, 0.5, n)
    balance = income * rng.normal(0.3, 0.4, n)
    tenure = rng.exponential(4, n)
    region = rng.integers(0, 8, n)
    product = rng.integers(0, 5, n)
    effect_r, effect_p = rng.normal(0, 1.2, 8), rng.normal(0, 1.2, (8, 5))
    z = 1.2 * np.sin(age / 9) - 0.5 * tenure + effect_r[region] + effect_p[region, product] + 3 * (balance < 0) + 0.5
    churn = rng.random(n) < 1 / (1 + np.exp(-2.0 * z))
    with open(path, "w", newline="") as f:
        w = csv.writer(f)
        w.writerow(COLUMNS)
        for row in zip(
            age.round(1), income.round(2), balance.round(2), tenure.round(2), region, product, churn.astype(int)
        ):
            w.writerow(row)


def load_customers(path):
    table = np.loadtxt(path, delimiter=",", skiprows=1)
    num, cat, y = table[:, :4].copy(), table[:, 4:6], table[:, 6]
    num[:, 1] = np.log(num[:, 1])
    num[:, 2] = np.sign(num[:, 2]) * np.log1p(np.abs(num[:, 2]) / 1000)
    cut = int(0.85 * len(num))
    num = (num - num[:cut].mean(0)) / num[:cut].std(0)
    tensors = torch.tensor(num, dtype=torch.float32), torch.tensor(cat).long(), torch.tensor(y).float()
    return [t[:cut] for t in tensors], [t[cut:] for t in tensors]


class TabNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.region, self.product = nn.Embedding(8, 8), nn.Embedding(5, 8)
        self.body = nn.Sequential(nn.Linear(20, 96), nn.SiLU(), nn.Linear(96, 96), nn.SiLU(), nn.Linear(96, 1))

    def forward(self, num, cat):
        x = torch.cat([num, self.region(cat[:, 0]), self.product(cat[:, 1])], -1)
        return self.body(x).squeeze(-1)


@torch.no_grad()
def accuracy(model, part):
    num, cat, y = part
    return ((model(num, cat) > 0) == (y > 0.5)).float().mean().item()


def main():
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "customers.csv")
        write_customers(path)
        train, test = load_customers(path)
    model = TabNet()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**32, growth_interval=200)
    crit = nn.BCEWithLogitsLoss()
    step, mean = 0, 0.0
    print(f"majority class {max(test[2].mean().item(), 1 - test[2].mean().item()):.3f}")
    for epoch in range(12):
        for idx in torch.randperm(len(train[0])).split(128):
            num, cat, y = (t[idx] for t in train)
            with torch.autocast("cpu", dtype=torch.float16):
                logit = model(num, cat)
            loss = crit(logit.float(), y)
            opt.zero_grad()
            scaler.scale(loss).backward()
            scaler.unscale_(opt)
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(opt)
            scaler.update()
            step += 1
            mean += loss.item()
            if step <= 20 and step % 4 == 0:
                print(
                    f"step {step} loss {loss.item():.4f} grad norm {norm.item():.3f} scale 2^{np.log2(scaler.get_scale()):.0f}"
                )
            if step % 60 == 0:
                print(
                    f"step {step} loss {mean / 60:.4f} scale 2^{np.log2(scaler.get_scale()):.0f} "
                    f"test accuracy {accuracy(model, test):.3f}"
                )
                mean = 0.0


if __name__ == "__main__":
    main()
