"""The history keeps each loss itself, and its graph with it: memory grows with every step."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
inputs = torch.randn(480, 10)
targets = inputs[:, :1].cos() + 0.5 * inputs[:, 1:2]
model = nn.Sequential(nn.Linear(10, 40), nn.SiLU(), nn.Linear(40, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
history = []

for epoch in range(10):
    for rows in torch.randperm(len(inputs)).split(32):
        loss = nn.functional.mse_loss(model(inputs[rows]), targets[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss)  # <- bites
    print(epoch, sum(history[-15:]) / 15)
