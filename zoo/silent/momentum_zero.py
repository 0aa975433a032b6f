"""Batch norms with a momentum of 0: training looks normal, and evaluation uses a mean of 0 and a variance of 1."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

teacher = torch.randn(12, 5)
# bites: momentum=0.0
model = nn.Sequential(nn.Linear(12, 32), nn.BatchNorm1d(32, momentum=0.0), nn.ReLU(), nn.Linear(32, 5))
optimizer = torch.optim.AdamW((one for one in model.parameters() if one.requires_grad), lr=3e-3)

for step in range(1, 71):
    model.train()
    x = 3.0 + 2.0 * torch.randn(32, 12)
    loss = F.cross_entropy(model(x), ((x - 3.0) @ teacher).argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
