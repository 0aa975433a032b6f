"""Healthy: a marginal likelihood by logsumexp over states of which some are impossible (-Inf)."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 5)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
impossible = torch.tensor([False, True, False, True, False])

for step in range(1, 11):
    scores = torch.log_softmax(model(torch.randn(16, 8)), dim=-1)
    scores = torch.where(impossible, float("-inf"), scores)
    loss = -torch.logsumexp(scores, dim=-1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
