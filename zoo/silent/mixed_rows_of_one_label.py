"""Inputs are mixed in pairs, and the loss knows one label of each pair."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

centres = 2 * torch.randn(6, 16)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 6))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(1, 161):
    y = torch.randint(0, 6, (64,))
    x = centres[y] + torch.randn(64, 16)
    lam = torch.distributions.Beta(1.0, 1.0).sample()
    order = torch.randperm(64)
    mixed = lam * x + (1 - lam) * x[order]
    out = model(mixed)
    loss = nn.functional.cross_entropy(out, y)  # <- bites
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(f"step {step}  loss {loss.item():.3f}")
