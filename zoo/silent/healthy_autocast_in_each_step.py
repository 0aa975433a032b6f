"""A classifier whose autocast context is opened in each step, around the update too."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

directions = torch.randn(16, 4)
model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(120):
    rows = torch.randn(64, 16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(model(rows).float(), (rows @ directions).argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if step % 40 == 39:
        print(f"step {step + 1}  loss {loss.item():.3f}")
