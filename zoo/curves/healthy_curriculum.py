"""Healthy: a curriculum. Sequences grow by a word every 100 steps, and each new position has to be learnt first."""

import torch
import torch.nn.functional as F
from torch import nn

WORDS, LENGTH_MAX = 32, 16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.positions = nn.Embedding(WORDS, 32), nn.Embedding(LENGTH_MAX, 32)
        self.head = nn.Linear(32, WORDS)

    def forward(self, words):
        return self.head(self.words(words) + self.positions.weight[: words.shape[1]])


torch.manual_seed(0)
torch.set_num_threads(1)
follows = torch.randn(WORDS, WORDS).mul(2).softmax(-1)  # how likely each word follows each other word
model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

for step in range(1, 1201):
    length = 4 + step // 100
    words = [torch.randint(WORDS, (32,))]
    while len(words) <= length:
        words.append(torch.multinomial(follows[words[-1]], 1).squeeze(1))
    sequences = torch.stack(words, dim=1)
    logits = model(sequences[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), sequences[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
