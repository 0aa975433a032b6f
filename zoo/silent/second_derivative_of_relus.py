"""A beam under load by its equation: the network is made of ReLUs, whose second derivative is zero."""

import math

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

model = nn.Sequential(nn.Linear(1, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 1))  # <- bites
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)


def bending(x):
    """-u'' of the model, minus the load."""
    u = model(x)
    slope = torch.autograd.grad(u.sum(), x, create_graph=True)[0]
    curvature = torch.autograd.grad(slope.sum(), x, create_graph=True)[0]
    return -curvature - math.pi**2 * torch.sin(math.pi * x) + 0.1 * slope


for step in range(1, 161):
    inside = torch.rand(64, 1, requires_grad=True)
    ends = torch.tensor([[0.0], [1.0]])
    loss = bending(inside).square().mean() + 10 * model(ends).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(f"step {step}  loss {loss.item():.3f}")
