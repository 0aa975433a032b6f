"""Dropout in several places, and random numbers drawn between forward and backward."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(
    nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 16), nn.Dropout(0.2), nn.Linear(16, 4)
)
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)

for step in range(1, 151):
    outputs = model(torch.randn(16, 8))
    smooth = nn.functional.dropout(outputs, 0.3)
    loss = nn.functional.cross_entropy(smooth + 0.01 * torch.randn_like(outputs), torch.randint(0, 4, (16,)))
    if step == 150:
        loss = loss + (outputs.sum() * 0).sqrt()  # <- bites
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
