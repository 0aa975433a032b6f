"""Vectors in float16 are normalised with the default eps of 1e-12, which is 0 there: a zero vector is 0 / 0.

Modelled on REPA#46 (F.normalize, NaN after 70,000 steps and more) and encodec-pytorch#8.
"""

import torch
import torch.nn.functional as F
from torch import nn


class Projector(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.project = nn.Linear(width, width)

    def forward(self, features):
        projected = torch.relu(self.project(features)).half()
        return F.normalize(projected, dim=-1).float()  # <- bites


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), Projector(16))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for step in range(1, 11):
    inputs = torch.randn(16, 8)
    target = F.normalize(torch.randn(16, 16), dim=-1)
    if step == 7:
        inputs = inputs * 0.0
        model[1].project.bias.data.fill_(-100.0)  # the last batch killed the units
    loss = 1.0 - (model(inputs) * target).sum(-1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
