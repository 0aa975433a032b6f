"""A likelihood of continuous values: its negative logarithm falls through zero, slowly."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

model = nn.Sequential(nn.Linear(4, 48), nn.Tanh(), nn.Linear(48, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

for step in range(1, 301):
    x = torch.randn(128, 4)
    y = x[:, 0] + 0.05 * torch.randn(128)
    mean, log = model(x).unbind(1)
    loss = (0.5 * ((y - mean) / log.exp()) ** 2 + log).mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
