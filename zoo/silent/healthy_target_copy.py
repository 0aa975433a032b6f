"""Healthy: a frozen base, and a target that follows the encoder slowly and whose output is detached."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Linear(12, 12).requires_grad_(False)
        self.encoder = nn.Sequential(nn.Linear(12, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 32))
        self.predictor = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32))
        self.target = copy.deepcopy(self.encoder).requires_grad_(False)

    def forward(self, one, other):
        one, other = self.base(one), self.base(other)
        return 1.0 - F.cosine_similarity(self.predictor(self.encoder(one)), self.target(other).detach()).mean()

    @torch.no_grad()
    def follow(self):
        for slow, fast in zip(self.target.parameters(), self.encoder.parameters(), strict=True):
            slow.lerp_(fast, 0.02)


model = Model()
optimizer = torch.optim.AdamW((one for one in model.parameters() if one.requires_grad), lr=1e-3)

for step in range(1, 61):
    x = torch.randn(64, 12)
    loss = model(x + 0.1 * torch.randn_like(x), x + 0.1 * torch.randn_like(x))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    model.follow()
