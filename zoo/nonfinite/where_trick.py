"""where() hides log(0) in the forward only: backward still divides the zero gradient of that element by 0."""

import torch
from torch import nn


class SafeLog(nn.Module):
    def forward(self, inputs):
        return torch.where(inputs > 0, torch.log(inputs), torch.zeros_like(inputs))  # <- bites


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.Softplus(), SafeLog(), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for step in range(1, 11):
    inputs = torch.randn(16, 8)
    if step == 7:
        inputs = inputs * 1e4  # softplus underflows to 0
    loss = (model(inputs) - 1.0).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
