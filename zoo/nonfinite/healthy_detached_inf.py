"""Healthy: a detached perplexity for the log overflows to Inf. The loss that is trained on does not."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
logged = []

for step in range(1, 11):
    loss = (model(torch.randn(16, 8)) - 20.0).pow(2).mean()
    logged.append(loss.detach().exp())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

assert torch.stack(logged).isinf().any()
