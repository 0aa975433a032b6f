"""Healthy: a frozen batch norm in evaluation mode, one with a momentum of None, and an instance norm."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

teacher = torch.randn(12, 5)
norm = nn.BatchNorm1d(32, momentum=0.0).requires_grad_(False)
base = nn.Sequential(nn.Linear(12, 32), norm)
model = nn.Sequential(
    base,
    nn.ReLU(),
    nn.BatchNorm1d(32, momentum=None),
    nn.Unflatten(1, (4, 8)),
    nn.InstanceNorm1d(4),
    nn.Flatten(),
    nn.Linear(32, 5),
)
optimizer = torch.optim.AdamW((one for one in model.parameters() if one.requires_grad), lr=3e-3)

for step in range(1, 71):
    model.train()
    norm.eval()
    x = 3.0 + 2.0 * torch.randn(32, 12)
    loss = F.cross_entropy(model(x), ((x - 3.0) @ teacher).argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
