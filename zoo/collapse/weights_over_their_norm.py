"""Rows of a weight are pruned, and all rows are divided by their norm after each step: that is 0 / 0."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

centers = torch.randn(10, 16)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

for step in range(1, 401):
    labels = torch.randint(10, (64,))
    hidden = model[1](model[0](centers[labels] + torch.randn(64, 16)))
    hidden = torch.where(hidden.isfinite(), hidden, 0.0)
    loss = F.cross_entropy(model[2](hidden), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        if step == 300:
            model[0].weight[:4] = 0.0
        model[0].weight /= model[0].weight.norm(dim=1, keepdim=True)
