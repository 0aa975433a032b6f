"""Clipping written by hand: all gradients times max_norm over their norm. With no gradient at all that is 0 * Inf.

Modelled on ms-swift PR8341 and DINO#20: the norm that is divided by was never looked at.
"""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for step in range(1, 11):
    inputs = torch.randn(16, 8)
    weights = torch.rand(16, 1) * (step != 7)  # every row of this batch is masked
    loss = ((model(inputs) - 1.0).pow(2) * weights).mean()
    optimizer.zero_grad()
    loss.backward()
    total = torch.stack([parameter.grad.norm() for parameter in model.parameters()]).norm()
    for parameter in model.parameters():
        parameter.grad.mul_(1.0 / total)  # <- bites
    optimizer.step()
