"""Three micro-batches to an update; in step 7 only the second is bad, and the third overwrites the logged loss."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for step in range(1, 11):
    optimizer.zero_grad()
    for micro in range(3):
        inputs = torch.randn(8, 8)
        weights = torch.rand(8)
        if step == 7 and micro == 1:
            weights = torch.zeros(8)
        errors = (model(inputs).squeeze(-1) - inputs.sum(-1)).pow(2)
        weights = weights / weights.sum()  # <- bites
        loss = (errors * weights).sum() / 3
        loss.backward()
    optimizer.step()
