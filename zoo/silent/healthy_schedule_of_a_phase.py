"""A warm-up has an optimizer of its own, which steps, and a schedule that stands when the phase is over."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

rows = torch.randn(640, 16)
targets = rows[:, :1] * rows[:, 1:2] + rows[:, 2:3] + 0.3 * torch.randn(640, 1)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
first = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
scheduler = torch.optim.lr_scheduler.StepLR(first, step_size=1, gamma=0.5)
second = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(8):
    optimizer = first if epoch < 2 else second
    for batch in torch.randperm(640).split(32):
        loss = F.mse_loss(model(rows[batch]), targets[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if epoch < 2:
        scheduler.step()
    print(f"epoch {epoch}  loss {loss.item():.3f}")
