"""Healthy: max pooling over an image padded with -Inf, by hand and by the library."""

import torch
import torch.nn.functional as F
from torch import nn


class PaddedPool(nn.Module):
    def forward(self, images):
        return F.max_pool2d(F.pad(images, (1, 1, 1, 1), value=float("-inf")), 3, stride=2)


torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(1, 4, 3, padding=1), PaddedPool(), nn.MaxPool2d(2, padding=1), nn.Flatten(), nn.Linear(36, 1)
)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for step in range(1, 11):
    loss = (model(torch.randn(4, 1, 8, 8)) - 1.0).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
