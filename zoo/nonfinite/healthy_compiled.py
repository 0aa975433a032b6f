"""Healthy: a small compiled model with dropout and normalisation. Inductor rounds otherwise than eager, and no more."""

import torch
from torch import nn

torch.manual_seed(0)
model = torch.compile(
    nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.LayerNorm(32), nn.Dropout(0.1), nn.Linear(32, 4), nn.LogSoftmax(-1))
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

for step in range(1, 11):
    inputs = torch.randn(16, 8)
    targets = torch.randint(0, 4, (16,))
    loss = nn.functional.nll_loss(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
