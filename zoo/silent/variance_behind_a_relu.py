"""A predicted variance passes a ReLU: where the output is negative it stands at its floor, and the loss explodes."""

import math

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
torch.set_num_threads(1)

net = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)


def likelihood(inputs, target):
    mean, raw = net(inputs).chunk(2, dim=-1)
    variance = F.relu(raw) + 1e-5  # <- bites: no gradient below 0
    return 0.5 * (torch.log(variance) + (target - mean) ** 2 / variance + math.log(2 * math.pi)).mean()


for step in range(200):
    inputs = torch.randn(64, 4)
    noise = (0.1 + 0.4 * torch.sigmoid(2 * inputs[:, 1:2])) * torch.randn(64, 1)
    loss = likelihood(inputs, torch.sin(inputs[:, :1]) + noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 49:
        print(f"step {step + 1}  loss {loss.item():.3f}")
