# expect: sick
# symptom: loss explodes by many orders at step 20 and does not come back
# axis: optimizer
# cause: Adam's epsilon is 1e-30: weights of a near-dark channel ran away while its gradients were around 1e-24; the batch of step 20 is innocent
# says: (?i)\beps(ilon)?\b
# onset_step: 20
# fix: eps=1e-8
# mended: MENDED=1 python s20_emission_spectra.py
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(20)


class Spectra(Dataset):
    """Eight channels in order of time. The eighth lamp is warmed up first and burns from row 608 on."""

    def __init__(self, n):
        g = torch.Generator().manual_seed(6)
        self.x = torch.randn(n, 8, generator=g)
        lamp = torch.rand(n, generator=g) * torch.where(torch.arange(n) < 608, 1e-24, 1.0)
        self.x[:, 7] = lamp
        self.y = torch.tanh(self.x @ torch.randn(8, generator=g)) + 0.05 * torch.randn(n, generator=g)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


net = nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Linear(24, 1))
shortcut = nn.Linear(8, 1, bias=False)
params = [*net.parameters(), *shortcut.parameters()]
eps = 1e-8 if os.environ.get("MENDED") == "1" else 1e-30
optimizer = torch.optim.Adam(params, lr=4e-3, eps=eps)
for step, (x, y) in enumerate(DataLoader(Spectra(32 * 260), batch_size=32), 1):
    loss = ((net(x) + shortcut(x)).squeeze(1) - y).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0 or 18 < step < 23:
        print(f"step {step} loss {loss.item():.4g}")
