"""Healthy: log(0) = -Inf is used as an additive mask before a softmax."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 6)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for step in range(1, 11):
    allowed = (torch.rand(16, 6) < 0.5).float()
    allowed[:, 0] = 1.0
    probabilities = torch.softmax(model(torch.randn(16, 8)) + torch.log(allowed), dim=-1)
    loss = (probabilities[:, 0] - 1.0).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
