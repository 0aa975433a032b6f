"""The optimizer is made anew after its schedule: the schedule still steps the first one."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

rows = torch.randn(640, 16)
targets = rows[:, :1] * rows[:, 1:2] + rows[:, 2:3] + 0.3 * torch.randn(640, 1)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.3)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)  # <- bites
for epoch in range(8):
    for batch in torch.randperm(640).split(32):
        loss = F.mse_loss(model(rows[batch]), targets[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    scheduler.step()
    print(f"epoch {epoch}  loss {loss.item():.3f}")
