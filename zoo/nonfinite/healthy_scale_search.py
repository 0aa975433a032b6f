"""Healthy: a gradient scaler looks for its scale. The first steps overflow and are skipped, as they are meant to be.

Modelled on Lightning#9799 and espnet#3237 (a search that is taken for a fault).
"""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**17)

for step in range(1, 11):
    inputs = torch.randn(16, 8)
    with torch.autocast("cpu", dtype=torch.float16):
        outputs = model(inputs)
    loss = (outputs.float() - 1.0).pow(2).mean()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
