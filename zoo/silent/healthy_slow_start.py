"""Healthy: a plain net of five layers leaves the loss of a guess slowly, with smoothed labels and a small rate."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

centers = torch.randn(10, 32)
hidden = [part for _ in range(3) for part in (nn.Linear(64, 64), nn.ReLU())]
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), *hidden, nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=5e-3, momentum=0.9)

for step in range(1, 301):
    labels = torch.randint(10, (128,))
    loss = F.cross_entropy(model(centers[labels] + torch.randn(128, 32)), labels, label_smoothing=0.05)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
