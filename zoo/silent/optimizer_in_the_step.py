"""The function of a step makes its optimizer, so Adam never averages over more than one gradient."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

rows = torch.randn(1024, 16)
targets = rows[:, :1] * rows[:, 1:2] + rows[:, 2:3] + 0.3 * torch.randn(1024, 1)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))


def train_step(model, x, y):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)  # <- bites
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()


for step in range(1, 161):
    batch = torch.randint(0, 1024, (32,))
    loss = train_step(model, rows[batch], targets[batch])
    if step % 40 == 0:
        print(f"step {step}  loss {loss:.3f}")
