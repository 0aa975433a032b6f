"""Healthy: outputs in float16 up to 40,000 of 65,504, and they stay there."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16), nn.LayerNorm(16), nn.Linear(16, 1))
with torch.no_grad():
    model[2].weight.mul_(20000.0)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

for step in range(1, 11):
    inputs = torch.randn(8, 16).clamp(-2, 2)
    with torch.autocast("cpu", dtype=torch.float16):
        outputs = model(inputs)
    loss = (outputs.float() - 1.0).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
