# expect: sick
# symptom: loss inf at step 20, NaN weights from then on
# axis: loss
# cause: log(1 + exp(x)) written by hand overflows for a large (valid) score
# says: (?i)\bexp(onential)?\b.{0,40}(overflow|inf|large|too)|overflow.{0,40}\bexp|log1p|softplus
# onset_step: 20
# fix: F.softplus instead of log(1 + exp(x))
# mended: MENDED=1 python s17_fraud_logistic.py
import os

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(17)


def softplus(x):
    if os.environ.get("MENDED") == "1":
        return F.softplus(x)
    return torch.log(1 + torch.exp(x))


def payments(n):
    g = torch.Generator().manual_seed(8)
    x = torch.randn(n, 10, generator=g)
    w = torch.randn(10, generator=g)
    x[19 * 64 + 30] = 90 * w.sign()
    y = (x @ w + 0.3 * torch.randn(n, generator=g) > 0).float()
    y[19 * 64 + 30] = 0
    return TensorDataset(x, y)


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide = nn.Linear(10, 1)
        self.deep = nn.Sequential(nn.Linear(10, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, x):
        return (self.wide(x) + self.deep(x)).squeeze(-1)


scorer = Scorer()
opt = torch.optim.AdamW(scorer.parameters(), lr=2e-2)
done = 0
for x, y in DataLoader(payments(64 * 220), batch_size=64):
    s = scorer(x)
    loss = softplus(torch.where(y > 0, -s, s)).mean()
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(scorer.parameters(), 1.0)
    opt.step()
    done += 1
    if done % 10 == 0:
        print(f"{done:4d} {loss.item():.4f}")
