"""An optimizer for each of two models, and one for a code that is fitted with a fixed model."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

rows = torch.randn(1024, 16)
targets = rows[:, :1] * rows[:, 1:2] + rows[:, 2:3] + 0.3 * torch.randn(1024, 1)


def train_step(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()


for width in (16, 64):
    model = nn.Sequential(nn.Linear(16, width), nn.ReLU(), nn.Linear(width, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(1, 81):
        batch = torch.randint(0, 1024, (32,))
        loss = train_step(model, optimizer, rows[batch], targets[batch])
        if step % 40 == 0:
            print(f"width {width}  step {step}  loss {loss:.3f}")
