"""A model of a pendulum learns to predict 1, then 4, then 12 steps; at step 231 its learning rate becomes 100 times as
large."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

angle, speed = 4 * torch.rand(512) - 2, 4 * torch.rand(512) - 2
path = [torch.stack([angle, speed], 1)]
for _ in range(40):
    speed = speed - 0.2 * angle.sin()
    angle = angle + 0.2 * speed
    path.append(torch.stack([angle, speed], 1))
paths = torch.stack(path, 1)

model = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.003)

for step in range(450):
    horizon = 1 if step < 150 else 4 if step < 300 else 12
    if step == 230:
        optimizer.param_groups[0]["lr"] *= 100
    begin = int(torch.randint(0, 40 - horizon, ()))
    seen = paths[torch.randint(0, 512, (32,)), begin : begin + horizon + 1]
    state, loss = seen[:, 0] + 0.02 * torch.randn(32, 2), 0.0
    for at in range(horizon):
        state = state + model(state)
        loss = loss + F.mse_loss(state, seen[:, at + 1])
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if step % 30 == 0:
        print(f"step {step} horizon {horizon} loss {loss.item():.4f}")
