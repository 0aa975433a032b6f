"""The power of a machine with a cycle of three minutes, predicted from the time of each reading.

Modelled on time features made of Unix times in float32, which are multiples of 128 seconds there: cause
low-precision-positions. Mended: the time of the first reading is taken off in float64.
"""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv
CYCLE_S, ROWS = 180.0, 4000
torch.manual_seed(0)
torch.set_num_threads(1)

first = 1_733_000_000.0
moments = first + 5 * 86_400 * torch.rand(ROWS, dtype=torch.float64).sort().values
cycle = 2 * torch.pi * torch.remainder(moments - first, CYCLE_S) / CYCLE_S
power = (torch.sin(cycle) + 0.5 * torch.cos(2 * cycle)).float() + 0.1 * torch.randn(ROWS)


def features(moments):
    times = (moments - (first if FIXED else 0.0)).float()
    phase = 2 * torch.pi * torch.remainder(times, CYCLE_S) / CYCLE_S
    return torch.stack([torch.sin(phase), torch.cos(phase), torch.sin(2 * phase), torch.cos(2 * phase)], 1)


inputs = features(moments)
model = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

for step in range(1, 201):
    rows = torch.randint(ROWS, (128,))
    loss = nn.functional.mse_loss(model(inputs[rows]).squeeze(1), power[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
