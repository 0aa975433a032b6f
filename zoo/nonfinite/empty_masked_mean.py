"""A masked mean as the loss: step 7 has nothing left under the mask, and 0 / 0 is NaN."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for step in range(1, 11):
    inputs = torch.randn(16, 8)
    labelled = torch.rand(16) < (0.0 if step == 7 else 0.7)
    errors = (model(inputs).squeeze(-1) - inputs.sum(-1)).pow(2)
    loss = (errors * labelled).sum() / labelled.sum()  # <- bites
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
