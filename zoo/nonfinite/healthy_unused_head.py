"""Healthy: a head with no gradient but zeros under Adam, whose eps keeps its update at 0 / eps."""

import torch
from torch import nn

torch.manual_seed(0)
body = nn.Sequential(nn.Linear(8, 16), nn.ReLU())
heads = nn.ModuleList([nn.Linear(16, 1), nn.Linear(16, 1)])
optimizer = torch.optim.Adam([*body.parameters(), *heads.parameters()], lr=1e-3)

for step in range(1, 11):
    inputs = torch.randn(16, 8)
    features = body(inputs)
    loss = (heads[0](features) - 1.0).pow(2).mean() + 0.0 * heads[1](features).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
