"""One layer runs in float16 for speed. Its inputs are in range, their products summed up are not."""

import torch
import torch.nn.functional as F
from torch import nn


class HalfIsland(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width, width))

    def forward(self, inputs):
        return F.linear(inputs.half(), self.weight.half()).float()  # <- bites


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 64), HalfIsland(64), nn.LayerNorm(64), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

for step in range(1, 11):
    inputs = torch.randn(8, 64)
    if step == 7:
        inputs = inputs * 2e4
    loss = (model(inputs) - 1.0).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
