"""Healthy: masked_fill with -Inf and a softmax. Every row keeps one place, and masked targets are never scored."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 6)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for step in range(1, 11):
    illegal = torch.rand(16, 6) < 0.5
    illegal[:, 2] = False
    logits = model(torch.randn(16, 8)).masked_fill(illegal, float("-inf"))
    loss = F.cross_entropy(logits, torch.full((16,), 2))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
