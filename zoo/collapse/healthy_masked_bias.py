"""Healthy: a learned bias of attention that holds minus infinity where a query must not look, and stays so."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

WORDS, LENGTH, WIDTH = 32, 16, 32


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.full((LENGTH, LENGTH), float("-inf")).triu(1))

    def forward(self, scores):
        return scores + self.bias


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.mask, self.head = Masked(), nn.Linear(WIDTH, WORDS)

    def forward(self, text):
        hidden = self.words(text) + self.places(torch.arange(LENGTH))
        scores = self.query(hidden) @ self.key(hidden).transpose(1, 2) / WIDTH**0.5
        return self.head(hidden + self.mask(scores).softmax(-1) @ self.value(hidden))


chain = torch.softmax(2.0 * torch.randn(WORDS, WORDS), -1)
model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

for step in range(1, 301):
    text = [torch.randint(WORDS, (32,))]
    for _ in range(LENGTH):
        text.append(torch.multinomial(chain[text[-1]], 1).squeeze(1))
    text = torch.stack(text, 1)
    loss = F.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
