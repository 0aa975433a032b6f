"""Healthy: SGD with a momentum of 0.99 at a rate that was made for it; a step is as long as one of 0.02 under 0.9."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

centers = torch.randn(10, 16)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.002, momentum=0.99)

for step in range(1, 401):
    labels = torch.randint(10, (64,))
    loss = F.cross_entropy(model(centers[labels] + torch.randn(64, 16)), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(f"step {step} loss {loss.item():.4f}")
