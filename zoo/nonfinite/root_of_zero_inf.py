"""Backward only, and Inf only: a root of a ReLU. Where the ReLU gives 0, the root has an infinite slope.

Modelled on discuss.pytorch.org/t/94875 (sqrt at zero). detect_anomaly does not raise: it looks for NaN, not for Inf.
"""

import torch
from torch import nn

torch.manual_seed(0)
scale = nn.Parameter(torch.ones(16))
model = nn.Linear(8, 16)
optimizer = torch.optim.SGD([*model.parameters(), scale], lr=0.001)

for step in range(1, 11):
    inputs = torch.randn(16, 8)
    energies = model(inputs).pow(2).mean(0) + scale
    if step == 7:
        energies = energies.detach() * 0.0 + scale - scale.detach()  # a silent clip
    loss = energies.sqrt().sum()  # <- bites
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
