"""Batch norms normalise over the four rows of a batch."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

first = [nn.Linear(12, 48), nn.BatchNorm1d(48), nn.ReLU()]
model = nn.Sequential(*first, nn.Linear(48, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
rule = torch.randn(12, 4)

for step in range(1, 161):
    optimizer.zero_grad()
    for _ in range(4):
        x = torch.randn(4, 12)  # <- bites
        loss = F.cross_entropy(model(x), (x @ rule).argmax(1)) / 4
        loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(f"step {step}  loss {4 * loss.item():.3f}")
