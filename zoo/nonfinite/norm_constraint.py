"""A constraint on the norm of each unit's weights divides by that norm, and a unit has just been pruned to zero."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

for step in range(1, 11):
    inputs = torch.randn(16, 8)
    targets = torch.randint(0, 4, (16,))
    loss = nn.functional.cross_entropy(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        weight = model[0].weight
        if step == 6:
            weight[weight.norm(dim=1).argmin()] = 0.0
        length = weight.norm(dim=1, keepdim=True)
        weight.mul_(length.clamp(max=1.0) / length)  # <- bites
