"""The wind of the next hour, predicted from pressure, temperature and humidity that a running scale normalises.

Modelled on a scale that is the mean of squares less the square of the mean, in float32. A pressure near 101,000 has
squares near 1e10, whose neighbours are 1,024 apart: cause cancelled-variance. Mended: the sums are kept of the
difference to the mean of a first batch.
"""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)

WIDTH, ROWS = 3, 3000
front = torch.cumsum(torch.randn(ROWS) * 0.2, 0)
front = front - torch.linspace(float(front[0]), float(front[-1]), ROWS)
weather = torch.stack([101_300 + 12 * front, 11 + 2 * torch.randn(ROWS), 60 + 9 * torch.randn(ROWS)], 1)
wind = (torch.tanh(front) + 0.05 * (weather[:, 1] - 11)).unsqueeze(1)


class RunningScale(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("total", torch.zeros(WIDTH))
        self.register_buffer("squares", torch.zeros(WIDTH))
        self.register_buffer("offset", torch.zeros(WIDTH))

    def forward(self, rows):
        if FIXED and not self.count:
            self.offset.copy_(rows.mean(0))
        rows = rows - self.offset
        self.count += len(rows)
        self.total += rows.sum(0)
        self.squares += rows.pow(2).sum(0)
        mean = self.total / self.count
        variance = (self.squares / self.count - mean.pow(2)).clamp(min=1e-4)  # <- bites
        return (rows - mean) / variance.sqrt()


scale = RunningScale()
model = nn.Sequential(nn.Linear(WIDTH, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

for step in range(1, 201):
    picked = torch.randint(ROWS, (64,))
    loss = nn.functional.mse_loss(model(scale(weather[picked])), wind[picked])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
