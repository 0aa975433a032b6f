"""Prices in their own units as targets, for a model that begins at 0 and an optimizer with steps of 0.001."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

houses = torch.randn(1024, 8)
prices = 250_000 + 5_000 * (houses @ torch.randn(8, 1))  # <- bites
model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(1, 161):
    batch = torch.randint(0, 1024, (64,))
    loss = F.mse_loss(model(houses[batch]), prices[batch])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(f"step {step}  loss {loss.item():.4g}")
