"""Healthy: biases that begin at -2 keep 19 of 20 ReLUs silent for each input, and other inputs wake other units."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

centers = torch.randn(10, 32)
model = nn.Sequential(nn.Linear(32, 512), nn.ReLU(), nn.Linear(512, 10))
nn.init.constant_(model[0].bias, -2.0)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for step in range(1, 501):
    labels = torch.randint(10, (128,))
    inputs = centers[labels] + 2 * torch.randn(128, 32)
    loss = F.cross_entropy(model(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
