"""A regression whose targets are standardised, and a model that ends in a sigmoid: half of the targets are below 0."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

measured = torch.randn(1024, 8)
heights = (measured @ torch.randn(8, 1)) / 3 + 0.1 * torch.randn(1024, 1)
model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1), nn.Sigmoid())  # <- bites
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(1, 161):
    batch = torch.randint(0, 1024, (64,))
    loss = F.mse_loss(model(measured[batch]), heights[batch])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(f"step {step}  loss {loss.item():.3f}")
