"""Healthy: images that are easy but for a few. Most batches cost next to nothing, and now and then one does not."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

prototypes = torch.randn(10, 20)
model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

for step in range(1, 1201):
    labels = torch.randint(10, (16,))
    images = prototypes[labels] + torch.randn(16, 20)
    loss = F.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
