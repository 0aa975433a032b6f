"""A reader normalises its causal attention over the queries: what a place receives does not sum to one."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

TOKENS, LENGTH = 40, 16
LATER = torch.ones(LENGTH, LENGTH).triu(1).bool()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix, self.out, self.norm = nn.Linear(32, 96), nn.Linear(32, 32), nn.LayerNorm(32)

    def forward(self, x):
        q, k, v = self.mix(self.norm(x)).view(*x.shape[:2], 3, 4, 8).permute(2, 0, 3, 1, 4)
        scores = (q @ k.mT / 8**0.5).masked_fill(LATER, float("-inf"))
        weights = F.dropout(scores.softmax(-2), 0.1)  # <- bites: the keys are dimension -1
        return x + self.out((weights @ v).transpose(1, 2).flatten(2))


model = nn.Sequential(nn.Embedding(TOKENS, 32), Block(), Block(), nn.Linear(32, TOKENS))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

for step in range(1, 61):
    text = (torch.randint(TOKENS, (16, 1)) + torch.arange(LENGTH + 1) * torch.randint(1, 4, (16, 1))) % TOKENS
    loss = F.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
