"""Autocast to bfloat16 around forward and loss."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

for step in range(1, 151):
    inputs, targets = torch.randn(16, 8), torch.randint(0, 4, (16,))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs = model(inputs)
        loss = nn.functional.cross_entropy(outputs, targets)
    if step == 150:
        loss = loss + (outputs.float().sum() * 0).sqrt()  # <- bites
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
