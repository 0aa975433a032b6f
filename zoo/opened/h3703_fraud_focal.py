# expect: healthy
# symptom: resembles a vanishing loss and a majority-class collapse: loss values around 0.01, 3 % positives
# axis: loss
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(19)


def make_payments(n, seed):
    rng = np.random.default_rng(seed)
    y = rng.random(n) < 0.03
    x = rng.standard_normal((n, 20))
    kind = rng.integers(0, 2, n)
    x[y & (kind == 0), :4] += [1.8, -1.5, 1.6, 1.4]
    x[y & (kind == 1), 4:8] *= 2.6
    x[y & (kind == 1), 8] += 1.8
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)


class Residual(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.ff = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        return x + self.ff(self.norm(x))


class FraudNet(nn.Module):
    def __init__(self, prior=0.03, dim=32):
        super().__init__()
        self.inp = nn.Linear(20, dim)
        self.blocks = nn.Sequential(Residual(dim), Residual(dim))
        self.out = nn.Linear(dim, 1)
        nn.init.zeros_(self.out.weight)
        nn.init.constant_(self.out.bias, math.log(prior / (1 - prior)))

    def forward(self, x):
        return self.out(self.blocks(self.inp(x))).squeeze(-1)


def focal_loss(logits, y, gamma=2.0, alpha=0.75):
    ce = F.binary_cross_entropy_with_logits(logits, y, reduction="none")
    p_true = torch.exp(-ce)
    weight = alpha * y + (1 - alpha) * (1 - y)
    return (weight * (1 - p_true) ** gamma * ce).mean()


@torch.no_grad()
def average_precision(model, x, y):
    model.eval()
    order = model(x).argsort(descending=True)
    model.train()
    hits = y[order]
    precision = hits.cumsum(0) / torch.arange(1, len(hits) + 1)
    return ((precision * hits).sum() / hits.sum()).item()


def main():
    x, y = make_payments(12000, seed=0)
    vx, vy = make_payments(6000, seed=1)
    loader = DataLoader(TensorDataset(x, y), batch_size=256, shuffle=True, drop_last=True)
    model = FraudNet()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-2)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=2e-3, epochs=6, steps_per_epoch=len(loader))
    step = 0
    for epoch in range(6):
        for xb, yb in loader:
            loss = focal_loss(model(xb), yb)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            if step % 20 == 0:
                print(f"step {step:3d} focal {loss.item():.5f} positives in batch {int(yb.sum())}")
            step += 1
        print(f"epoch {epoch} valid average precision {average_precision(model, vx, vy):.3f} (chance 0.03)")


if __name__ == "__main__":
    main()
