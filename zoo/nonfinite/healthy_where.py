"""Healthy: missing targets are NaN, and where() takes them out before anything is differentiated."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for step in range(1, 11):
    inputs = torch.randn(16, 8)
    targets = inputs.sum(-1)
    targets[torch.rand(16) < 0.3] = float("nan")
    known = ~torch.isnan(targets)
    targets = torch.where(known, targets, torch.zeros_like(targets))
    errors = (model(inputs).squeeze(-1) - targets).pow(2)
    loss = (errors * known).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
