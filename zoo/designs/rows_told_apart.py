"""Healthy: pairs are told from each other within their batch. Scores are scaled, so the first loss is above a guess."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class TwoTowers(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(20, 16), nn.Linear(30, 16)
        self.log_scale = nn.Parameter(torch.tensor(2.66))

    def forward(self, left, right):
        scale = self.log_scale.exp().clamp(max=100)
        return scale * F.normalize(self.left(left), dim=1) @ F.normalize(self.right(right), dim=1).T


model = TwoTowers()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
to_left, to_right, places = torch.randn(8, 20), torch.randn(8, 30), torch.arange(64)

for step in range(1, 201):
    meant = torch.randn(64, 8)
    scores = model(meant @ to_left + 0.1 * torch.randn(64, 20), meant @ to_right + 0.1 * torch.randn(64, 30))
    loss = (F.cross_entropy(scores, places) + F.cross_entropy(scores.T, places)) / 2
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
