"""Healthy: the norm of gradients is taken with max_norm=inf, for the log alone. Nothing is clipped."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for step in range(1, 11):
    inputs = torch.randn(16, 8)
    loss = (model(inputs) - 1.0).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), float("inf"))
    optimizer.step()
