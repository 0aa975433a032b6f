"""Healthy: adapters of rank 4, which begin at zero, beside frozen layers; the optimizer was given all parameters."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Adapted(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.base = nn.Linear(size, size).requires_grad_(False)
        self.down, self.up = nn.Linear(size, 4, bias=False), nn.Linear(4, size, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, hidden):
        return F.relu(self.base(hidden) + self.up(self.down(hidden)))


centers = torch.randn(10, 32)
model = nn.Sequential(*(Adapted(32) for _ in range(6)), nn.Linear(32, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

for step in range(1, 401):
    labels = torch.randint(10, (64,))
    inputs = centers[labels] + 2 * torch.randn(64, 32)
    loss = F.cross_entropy(model(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
