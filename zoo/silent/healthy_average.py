"""An average of the weights whose decay grows with the updates is evaluated."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

DECAY = 0.9999
model = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 1))
average = copy.deepcopy(model).requires_grad_(False)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(1, 301):
    x = torch.randn(64, 8)
    loss = F.mse_loss(model(x)[:, 0], x[:, 0] + x[:, 1].tanh())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for kept, now in zip(average.parameters(), model.parameters(), strict=True):
            kept.lerp_(now, 1 - min(DECAY, (1 + step) / (10 + step)))
        if step % 100 == 0:
            print(step, F.mse_loss(average(x)[:, 0], x[:, 0] + x[:, 1].tanh()).item())
