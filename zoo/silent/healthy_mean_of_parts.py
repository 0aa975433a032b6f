"""Healthy: each of four micro-batches is divided by their number before its backward."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

PARTS = 4
teacher = torch.randn(12, 5)
model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 5))
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)

for step in range(1, 61):
    for x in torch.randn(PARTS, 16, 12):
        loss = F.cross_entropy(model(x), (x @ teacher).argmax(1))
        (loss / PARTS).backward()
    optimizer.step()
    optimizer.zero_grad()
