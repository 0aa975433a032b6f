# expect: healthy
# symptom: resembles the fault that a term is summed over the whole batch and added to the value of each row, so it counts as often as there are rows
# axis: none
# mended: none
import math

import torch
from torch import nn

torch.manual_seed(58)
DIM = 6


class ActNorm(nn.Module):
    """Per-feature affine map with learned log scale."""

    def __init__(self, dim):
        super().__init__()
        self.log_scale = nn.Parameter(torch.zeros(dim))
        self.shift = nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        y = (x + self.shift) * self.log_scale.exp()
        return y, self.log_scale.sum()


class AffineCoupling(nn.Module):
    def __init__(self, dim, width=32):
        super().__init__()
        self.k = dim // 2
        self.net = nn.Sequential(nn.Linear(self.k, width), nn.SiLU(), nn.Linear(width, 2 * (dim - self.k)))

    def forward(self, x):
        a, b = x.split([self.k, x.size(1) - self.k], dim=1)
        s, t = self.net(a).chunk(2, 1)
        s = 0.5 * torch.tanh(s)
        y = torch.cat([b * s.exp() + t, a], dim=1)
        return y, s.sum(dim=1)


class Glowish(nn.Module):
    def __init__(self, dim, blocks=3):
        super().__init__()
        self.steps = nn.ModuleList()
        for _ in range(blocks):
            self.steps.append(ActNorm(dim))
            self.steps.append(AffineCoupling(dim))

    def forward(self, x):
        logdet = x.new_zeros(x.size(0))
        for step in self.steps:
            x, ld = step(x)
            logdet = logdet + ld
        return x, logdet


def spectra(n):
    latent = torch.randn(n, 2)
    mix = torch.tensor([[1.0, 0.5, -0.3, 0.8, 0.0, 0.4], [0.2, -0.7, 0.9, 0.1, 1.1, -0.5]])
    return torch.tanh(latent @ mix) + 0.2 * torch.randn(n, DIM)


model = Glowish(DIM)
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
train, test = spectra(3000), spectra(500)
for step in range(60):
    x = train[torch.randint(0, 3000, (100,))]
    z, logdet = model(x)
    log_prob = -0.5 * z.pow(2).sum(1) - DIM / 2 * math.log(2 * math.pi) + logdet
    loss = -log_prob.mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 15 == 14:
        with torch.no_grad():
            zt, ldt = model(test)
            nll = (0.5 * zt.pow(2).sum(1) + DIM / 2 * math.log(2 * math.pi) - ldt).mean()
        print(f"step {step + 1}: train {loss.item():.3f} test {nll.item():.3f}")
