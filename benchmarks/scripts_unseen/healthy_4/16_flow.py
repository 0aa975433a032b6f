# expect: healthy
# cause: none, a normalizing flow whose negative log-likelihood goes below zero because the density is narrow
import math

import torch
import torch.nn as nn

torch.manual_seed(16)


class Coupling(nn.Module):
    def __init__(self, dim, flip):
        super().__init__()
        self.flip, self.half = flip, dim // 2
        self.net = nn.Sequential(
            nn.Linear(self.half, 96), nn.Tanh(), nn.Linear(96, 96), nn.Tanh(), nn.Linear(96, 2 * (dim - self.half))
        )
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)

    def forward(self, x):
        if self.flip:
            x = x.flip(1)
        a, b = x[:, : self.half], x[:, self.half :]
        s, t = self.net(a).chunk(2, 1)
        s = 2 * torch.tanh(s / 2)
        return torch.cat([a, b * s.exp() + t], 1), s.sum(1)


class Flow(nn.Module):
    def __init__(self, dim=4, depth=8):
        super().__init__()
        self.log_scale, self.shift = nn.Parameter(torch.zeros(dim)), nn.Parameter(torch.zeros(dim))
        self.layers = nn.ModuleList(Coupling(dim, i % 2 == 1) for i in range(depth))

    def log_prob(self, x):
        z = (x - self.shift) * self.log_scale.exp()
        total = self.log_scale.sum()
        for layer in self.layers:
            z, ld = layer(z)
            total = total + ld
        return -0.5 * z.pow(2).sum(1) - 2 * math.log(2 * math.pi) + total


def joint_angles(n):
    """four joint positions of an arm that draws a line, in metres"""
    u = 2 * torch.rand(n) - 1
    clean = torch.stack([0.3 * u, 0.2 * u**2, 0.2 * torch.sin(2 * u), 0.1 * torch.cos(3 * u)], 1)
    return clean + 0.015 * torch.randn(n, 4)


flow = Flow()
opt = torch.optim.Adam(flow.parameters(), lr=3e-3)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 400, eta_min=1e-4)
held = joint_angles(2000)
for step in range(400):
    nll = -flow.log_prob(joint_angles(256)).mean()
    opt.zero_grad()
    nll.backward()
    nn.utils.clip_grad_norm_(flow.parameters(), 20.0)
    opt.step()
    sched.step()
    if step % 40 == 0 or step == 399:
        with torch.no_grad():
            print(f"step {step} nll {nll.item():.3f} held-out {-flow.log_prob(held).mean().item():.3f}")
