"""Healthy: a network learns to say what its own running mean says. That teacher has no gradient and no optimizer."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.pupil = nn.Sequential(nn.Linear(20, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 16))
        self.teacher = copy.deepcopy(self.pupil)
        self.predictor = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))

    def forward(self, one, other):
        with torch.no_grad():
            wanted = self.teacher(other)
        return 2 - 2 * F.cosine_similarity(self.predictor(self.pupil(one)), wanted.detach()).mean()


model = Pair()
optimizer = torch.optim.Adam([*model.pupil.parameters(), *model.predictor.parameters()], lr=1e-3)

for step in range(1, 151):
    seen = torch.randn(64, 20)
    loss = model(seen + 0.1 * torch.randn(64, 20), seen + 0.1 * torch.randn(64, 20))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for mean, now in zip(model.teacher.parameters(), model.pupil.parameters(), strict=True):
            mean.mul_(0.99).add_(now, alpha=0.01)
