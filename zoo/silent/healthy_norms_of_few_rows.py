"""Healthy: four images a batch, with places for the batch norms, of which one stands behind a pooling."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

first = [nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16), nn.ReLU()]
pooled = [nn.AdaptiveAvgPool2d(1), nn.Conv2d(16, 16, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten()]
model = nn.Sequential(*first, *pooled, nn.Linear(16, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for step in range(1, 161):
    labels = torch.randint(0, 2, (4,))
    x = torch.randn(4, 1, 10, 10) + labels[:, None, None, None] - 0.5
    loss = F.cross_entropy(model(x), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(f"step {step}  loss {loss.item():.3f}")
