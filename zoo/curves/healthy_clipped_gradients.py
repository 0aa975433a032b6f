"""Healthy: one batch in 90 holds inputs ten times as large. Its gradient is too, and clipping takes care of it."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

true_weight = torch.randn(10, 1)
model = nn.Linear(10, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)

for step in range(1, 1201):
    inputs = torch.randn(64, 10) * (10.0 if step % 90 == 0 else 1.0)
    targets = inputs @ true_weight + torch.randn(64, 1)
    loss = F.l1_loss(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
