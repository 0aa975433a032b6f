# expect: sick
# symptom: loss inf at step 120, then NaN
# axis: loss
# cause: log of a density that underflows to 0 for a target far from every component
# says: (?i)(log.{0,40}(0\b|zero|underflow)|underflow|log-?sum-?exp)
# onset_step: 120
# fix: torch.logsumexp of the log densities instead of the log of the summed densities
# mended: MENDED=1 python s28_mixture_density.py
import math
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(30)


class Travel(Dataset):
    """Travel time by distance; two kinds of roads; now and then a strike."""

    def __init__(self, n):
        g = torch.Generator().manual_seed(17)
        self.km = torch.rand(n, 1, generator=g)
        fast = torch.rand(n, 1, generator=g) < 0.5
        self.h = torch.where(fast, self.km, 2.5 * self.km + 0.5) + 0.2 * torch.randn(n, 1, generator=g)
        self.h[119 * 48 + 7] = 40.0

    def __len__(self):
        return len(self.km)

    def __getitem__(self, i):
        return self.km[i], self.h[i]


class MDN(nn.Module):
    def __init__(self, k=3):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 3 * k))

    def forward(self, x):
        w, mu, s = self.body(x).chunk(3, -1)
        return w.log_softmax(-1), mu, nn.functional.softplus(s) + 0.05


def nll(w, mu, s, y):
    log_n = -0.5 * ((y - mu) / s) ** 2 - s.log() - 0.5 * math.log(2 * math.pi)
    if os.environ.get("MENDED") == "1":
        return -torch.logsumexp(w + log_n, -1).mean()
    return -(w + log_n).exp().sum(-1).log().mean()


mdn = MDN()
opt = torch.optim.Adam(mdn.parameters(), lr=5e-3)
for step, (km, h) in enumerate(DataLoader(Travel(48 * 260), batch_size=48), 1):
    loss = nll(*mdn(km), h)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(mdn.parameters(), 1.0)
    opt.step()
    if step % 20 == 0:
        print(f"step {step} nll {loss.item():.4f}")
