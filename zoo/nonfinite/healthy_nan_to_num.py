"""Healthy: ratios of raw data with 0 / 0 among them go through nan_to_num before they reach the model."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for step in range(1, 11):
    counts, totals = torch.randint(0, 3, (16, 8)), torch.randint(0, 3, (16, 8))
    ratios = torch.nan_to_num(counts / totals, nan=0.0, posinf=5.0)
    loss = (model(ratios) - 1.0).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
