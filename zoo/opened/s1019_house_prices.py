# expect: sick
# symptom: the regression loss falls quickly to the variance of the target and stays there; R2 is about 0 and all predictions are alike
# axis: loss
# cause: the prediction has shape (B, 1) and the target (B,), so their difference broadcasts to (B, B) and every prediction is compared with every target; the best answer is the mean
# says: broadcast|shapes?[^.\n]{0,40}(mismatch|differ|\(|B\b|N\b|pred|target|not|broad)|(pred\w*|target|output)[^.\n]{0,30}shape|\(?B, ?1\)?|squeeze|unsqueeze|B ?[x×] ?B|dimension(s)? (mismatch|differ)|every prediction (with|against|to) every
# onset_step: 0
# fix: squeeze the prediction (or unsqueeze the target) before the loss
# mended: the model output is squeezed to (B,)
import os
import numpy as np
import torch
import torch.nn as nn

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(19)
rng = np.random.default_rng(19)

N, DISTRICTS, KINDS, NUMERIC = 24_000, 40, 6, 10
BATCH, EPOCHS = 256, 8


def make_table():
    district = rng.integers(0, DISTRICTS, N)
    kind = rng.integers(0, KINDS, N)
    num = rng.normal(0, 1, (N, NUMERIC))
    area = np.exp(0.4 * num[:, 0])
    level = rng.normal(0, 0.5, DISTRICTS)[district] + rng.normal(0, 0.3, KINDS)[kind]
    price = 1.2 * np.log(area + 0.3) + level + 0.3 * np.tanh(num[:, 1] * num[:, 2]) - 0.25 * np.abs(num[:, 3])
    price = price + 0.2 * np.sin(2 * num[:, 4]) + rng.normal(0, 0.15, N)
    num[:, 5] = np.exp(num[:, 5])
    price = (price - price.mean()) / price.std()
    return district, kind, num, price


class Standardiser:
    def fit(self, x):
        self.mean, self.std = x.mean(0), x.std(0) + 1e-6
        return self

    def __call__(self, x):
        return (x - self.mean) / self.std


class PriceNet(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.district = nn.Embedding(DISTRICTS, 8)
        self.kind = nn.Embedding(KINDS, 4)
        layers, d = [], NUMERIC + 12
        for _ in range(3):
            layers += [nn.Linear(d, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.05)]
            d = width
        self.trunk = nn.Sequential(*layers)
        self.out = nn.Linear(width, 1)

    def forward(self, district, kind, num):
        h = self.trunk(torch.cat([self.district(district), self.kind(kind), num], 1))
        y = self.out(h)
        return y.squeeze(-1) if MENDED else y


class Trainer:
    def __init__(self, model, cols):
        self.model = model
        self.cols = cols
        self.opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-3)

    def loss(self, pred, y):
        err = pred - y
        return (err**2).mean()

    def epoch(self, rows, number):
        self.model.train()
        order = rows[torch.randperm(len(rows))]
        for k, idx in enumerate(order.split(BATCH)):
            d, c, x, y = (t[idx] for t in self.cols)
            loss = self.loss(self.model(d, c, x), y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            if k % 20 == 0:
                print(f"epoch {number} batch {k:3d}  mse {loss.item():.4f}")

    @torch.no_grad()
    def r2(self, rows):
        self.model.eval()
        d, c, x, y = (t[rows] for t in self.cols)
        p = self.model(d, c, x).numpy().ravel()
        y = y.numpy()
        return 1 - ((p - y) ** 2).mean() / y.var(), p.std()


def main():
    district, kind, num, price = make_table()
    num = Standardiser().fit(num[:20_000])(num)
    cols = (
        torch.as_tensor(district),
        torch.as_tensor(kind),
        torch.as_tensor(num, dtype=torch.float32),
        torch.as_tensor(price, dtype=torch.float32),
    )
    rows = torch.arange(N)
    trainer = Trainer(PriceNet(), cols)
    for e in range(EPOCHS):
        trainer.epoch(rows[:20_000], e)
        r2, spread = trainer.r2(rows[20_000:])
        print(f"epoch {e} done  R2 {r2:.3f}  std of predictions {spread:.3f}")


if __name__ == "__main__":
    main()
