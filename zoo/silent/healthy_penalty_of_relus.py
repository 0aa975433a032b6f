"""A critic of ReLUs with a gradient penalty, a first derivative, and an equation solved by a smooth network."""

import math

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

critic = nn.Sequential(nn.Linear(2, 48), nn.ReLU(), nn.Linear(48, 1))
field = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.Adam([*critic.parameters(), *field.parameters()], lr=2e-3)


def curvature(x):
    slope = torch.autograd.grad(field(x).sum(), x, create_graph=True)[0]
    return torch.autograd.grad(slope.sum(), x, create_graph=True)[0]


for step in range(1, 161):
    real, made = torch.randn(64, 2) + 1, torch.randn(64, 2)
    between = torch.lerp(real, made, torch.rand(64, 1)).requires_grad_()
    slope = torch.autograd.grad(critic(between).sum(), between, create_graph=True)[0]
    loss = critic(made).mean() - critic(real).mean() + 10 * (slope.norm(dim=1) - 1).square().mean()
    inside = torch.rand(64, 1, requires_grad=True)
    residual = curvature(inside) + math.pi**2 * torch.sin(math.pi * inside)
    loss = loss + residual.square().mean() + 10 * field(torch.tensor([[0.0], [1.0]])).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(f"step {step}  loss {loss.item():.3f}")
