"""Compiled only, and Inf only: a signal-to-noise ratio of a cast to float16, which inductor fuses away: x / 0.

Modelled on pytorch#185337 (a cast to float16 and back is lost on the CPU) and pytorch#176565; that a NaN only comes
with inductor is pytorch#114109.
"""

import torch
from torch import nn


def noise_ratio(weights):
    noise = (weights - weights.half().float()).pow(2).mean()
    return weights.pow(2).mean() / noise  # <- bites


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
ratio = torch.compile(noise_ratio)

for step in range(1, 11):
    inputs = torch.randn(16, 8)
    loss = (model(inputs) - 1.0).pow(2).mean()
    if step >= 7:
        loss = loss + 1e-12 * ratio(model[0].weight)  # the quantisation-aware phase begins
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
