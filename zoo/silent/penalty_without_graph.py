"""A gradient penalty is taken without `create_graph=True`."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


def penalty(critic, x):
    x = x.requires_grad_(True)
    (slope,) = torch.autograd.grad(critic(x).sum(), x)  # <- bites
    return (slope.norm(dim=1) - 1).square().mean()


def harder(critic, x):
    x = x.detach().requires_grad_(True)
    (slope,) = torch.autograd.grad(critic(x).sum(), x)
    return (x - 0.1 * slope / slope.norm(dim=1, keepdim=True)).detach()


critic = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1, bias=False))
optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3)
for step in range(1, 201):
    real, fake = torch.randn(64, 4) + 1, torch.randn(64, 4)
    gap = critic(harder(critic, fake)).mean() - critic(real).mean()
    loss = gap + 10 * penalty(critic, torch.lerp(real, fake, torch.rand(64, 1)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
