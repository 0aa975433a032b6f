# expect: sick
# symptom: loss rises from the first steps on, 1e10 after some dozen steps, then inf and NaN
# axis: optimizer
# cause: the learning rate is far too high: every step overshoots from the start, no single batch is to blame
# says: (?i)((learning[ -]?)?rate.*(high|large|big)|(lr|step size).*(high|large|big)|overshoot)
# onset_step: 1
# fix: rate 0.004 instead of 0.05
# mended: MENDED=1 python s12_fourier_denoiser.py
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(12)


class NoisyPoints(Dataset):
    """Points on two arcs, noised at a random level: predict the noise."""

    def __init__(self, n):
        g = torch.Generator().manual_seed(3)
        t = 3.14 * torch.rand(n, generator=g)
        side = torch.randint(0, 2, (n,), generator=g) * 2 - 1
        x0 = torch.stack([t.cos(), side * t.sin()], 1)
        self.level = torch.rand(n, 1, generator=g) * 0.9 + 0.1
        self.noise = torch.randn(n, 2, generator=g)
        self.xt = (1 - self.level**2).sqrt() * x0 + self.level * self.noise

    def __len__(self):
        return len(self.xt)

    def __getitem__(self, i):
        return self.xt[i], self.level[i], self.noise[i]


class Denoiser(nn.Module):
    def __init__(self, m=96):
        super().__init__()
        self.register_buffer("freq", 0.7 * torch.randn(3, m))
        self.register_buffer("shift", 6.28 * torch.rand(m))
        self.out = nn.Linear(m + 2, 2)
        nn.init.zeros_(self.out.weight)

    def forward(self, x, level):
        z = torch.cos(torch.cat([x, level], 1) @ self.freq + self.shift)
        return self.out(torch.cat([z, x], 1))


model = Denoiser()
lr = 0.004 if os.environ.get("MENDED") == "1" else 0.05
opt = torch.optim.SGD(model.parameters(), lr=lr)
for step, (xt, level, noise) in enumerate(DataLoader(NoisyPoints(64 * 300), batch_size=64, shuffle=True), 1):
    loss = (model(xt, level) - noise).square().sum(1).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step <= 6 or step % 20 == 0:
        print(f"step {step:3d} loss {loss.item():.4e}")
