"""Healthy: adapters of rank 1 in a frozen model; less than a hundredth of the parameters is trained."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

TOKENS = 64


class LowRank(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base
        self.down = nn.Parameter(torch.randn(1, base.in_features) / base.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(base.out_features, 1))

    def forward(self, x):
        return self.base(x) + x @ self.down.T @ self.up.T


model = nn.Sequential(
    nn.Embedding(TOKENS, 256),
    nn.Linear(256, 512),
    nn.ReLU(),
    nn.Linear(512, 512),
    nn.ReLU(),
    nn.Linear(512, 256),
    nn.LayerNorm(256),
    nn.Linear(256, TOKENS),
)
model.requires_grad_(False)
for place in (1, 3, 5):
    model[place] = LowRank(model[place])
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
answers = torch.randint(TOKENS, (TOKENS,))

for step in range(1, 151):
    ids = torch.randint(TOKENS, (8, 16))
    loss = F.cross_entropy(model(ids).flatten(0, 1), answers[ids].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
