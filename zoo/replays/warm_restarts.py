"""A schedule with warm restarts and two parameter groups."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
groups = [{"params": model[0].parameters()}, {"params": model[2].parameters(), "lr": 5e-3, "weight_decay": 0.0}]
optimizer = torch.optim.AdamW(groups, lr=1e-3, amsgrad=True)
schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=30, T_mult=2)

for step in range(1, 151):
    outputs = model(torch.randn(16, 8))
    loss = nn.functional.cross_entropy(outputs, torch.randint(0, 4, (16,)))
    if step == 150:
        loss = loss + (outputs.sum() * 0).sqrt()  # <- bites
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
