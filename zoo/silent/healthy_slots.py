"""Healthy: attention over the keys, then slots that compete for the places and take softmax over themselves; the loss
reads log-probabilities whose classes were moved to dimension 1."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

TOKENS, LENGTH = 40, 16


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix, self.out, self.norm = nn.Linear(32, 96), nn.Linear(32, 32), nn.LayerNorm(32)

    def forward(self, x):
        q, k, v = self.mix(self.norm(x)).view(*x.shape[:2], 3, 4, 8).permute(2, 0, 3, 1, 4)
        weights = F.dropout((q @ k.mT / 8**0.5).softmax(-1), 0.1)
        return x + self.out((weights @ v).transpose(1, 2).flatten(2))


class Slots(nn.Module):
    def __init__(self):
        super().__init__()
        self.queries = nn.Parameter(torch.randn(4, 32))

    def forward(self, x):
        weights = (self.queries @ x.mT / 32**0.5).softmax(-2) + 1e-6
        return (weights / weights.sum(-1, keepdim=True)) @ x


model = nn.Sequential(nn.Embedding(TOKENS, 32), Block(), Block(), Slots(), nn.Linear(32, TOKENS))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

for step in range(1, 61):
    ids = torch.randint(TOKENS, (16, LENGTH))
    common = ids.mode(1).values
    loss = F.nll_loss(model(ids).log_softmax(-1).transpose(1, 2), common[:, None].expand(-1, 4))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
