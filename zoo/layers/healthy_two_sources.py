"""Healthy: batches from an easy and a hard source in turn, so that the loss goes up and down from the start."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

centers = torch.randn(10, 32)
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

for step in range(1, 901):
    labels = torch.randint(10, (64,))
    inputs = centers[labels] + (3.0 if step % 2 else 1.5) * torch.randn(64, 32)
    loss = F.cross_entropy(model(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
