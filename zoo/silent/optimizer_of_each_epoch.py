"""A function gives each epoch an Adam of its own: the moments of the epoch before are lost nine times."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
inputs = torch.randn(384, 6)
targets = torch.sin(2 * inputs[:, :1]) + 0.3 * inputs[:, 1:2] * inputs[:, 2:3]
model = nn.Sequential(nn.Linear(6, 64), nn.GELU(), nn.Linear(64, 1))


def configured(parameters):
    return torch.optim.Adam(parameters, lr=2e-3)


def fit_once(order):
    optimizer = configured(model.parameters())  # <- bites
    for rows in order.split(32):
        loss = nn.functional.mse_loss(model(inputs[rows]), targets[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


for epoch in range(12):
    print(epoch, fit_once(torch.randperm(len(inputs))))
