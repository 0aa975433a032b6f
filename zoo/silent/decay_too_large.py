"""A penalty of the weights is summed, with a factor that was meant for a mean: it rules the loss."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

for step in range(1, 121):
    x = torch.randn(32, 16)
    penalty = sum(one.square().sum() for one in model.parameters() if one.dim() > 1)
    loss = F.mse_loss(model(x), x[:, :1] * x[:, 1:2]) + 2.0 * penalty  # <- bites: 2e-4 was meant
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
