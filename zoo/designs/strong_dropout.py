"""Healthy: a dropout of 0.8 on wide layers; it slows learning down, and the model learns all the same."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

centers = 2.0 * torch.randn(10, 16)
model = nn.Sequential(nn.Linear(16, 256), nn.ReLU(), nn.Dropout(0.8), nn.Linear(256, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

for step in range(1, 301):
    labels = torch.randint(10, (64,))
    loss = F.cross_entropy(model(centers[labels] + torch.randn(64, 16)), labels, label_smoothing=0.1)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(f"step {step} loss {loss.item():.4f}")
