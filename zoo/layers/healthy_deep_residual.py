"""Healthy: twenty blocks, a shortcut around each; branches begin at zero, so that they wake late."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(32), nn.Linear(32, 64), nn.Linear(64, 32)
        nn.init.zeros_(self.down.weight)

    def forward(self, hidden):
        return hidden + self.down(F.relu(self.up(self.norm(hidden))))


centers = torch.randn(10, 32)
model = nn.Sequential(*(Block() for _ in range(20)), nn.LayerNorm(32), nn.Linear(32, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

for step in range(1, 301):
    labels = torch.randint(10, (64,))
    inputs = centers[labels] + 2 * torch.randn(64, 32)
    loss = F.cross_entropy(model(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
