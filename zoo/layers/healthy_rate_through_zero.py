"""A warm-up from zero, then cosine restarts that end at zero: the rate is zero for one step at a time."""

import math

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

WARM_UP, CYCLE = 20, 60


def share(step: int) -> float:
    if step < WARM_UP:
        return step / WARM_UP
    return 0.5 * (1.0 + math.cos(math.pi * ((step - WARM_UP) % CYCLE) / (CYCLE - 1)))


model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, share)

for step in range(1, WARM_UP + 3 * CYCLE + 1):
    x = torch.randn(32, 16)
    loss = F.cross_entropy(model(x), x[:, :4].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
