"""Losses of four parts are listed with their graphs for one common backward; the history holds numbers."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
inputs = torch.randn(480, 10)
targets = inputs[:, :1].cos() + 0.5 * inputs[:, 1:2]
model = nn.Sequential(nn.Linear(10, 40), nn.SiLU(), nn.Linear(40, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
history, running = [], 0.0

for epoch in range(10):
    for rows in torch.randperm(len(inputs)).split(32):
        parts = []
        for few in rows.split(8):
            parts.append(nn.functional.mse_loss(model(inputs[few]), targets[few]))
        loss = torch.stack(parts).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss = loss.item()
        history.append(loss)
        running += loss
    print(epoch, sum(history[-15:]) / 15)
