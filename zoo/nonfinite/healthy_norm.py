"""Healthy: the library's norm of a zero vector. Its derivative at zero is defined as zero."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 4, bias=False)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for step in range(1, 11):
    inputs = torch.randn(16, 8)
    inputs[3] = 0.0
    loss = torch.linalg.vector_norm(model(inputs), dim=-1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
