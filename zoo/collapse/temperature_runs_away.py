"""The temperature of attention is annealed by 2 % a step from step 200 on, without a floor."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

WORDS, LENGTH, WIDTH = 16, 12, 32


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.query, self.key = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.value, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.sharpness = 1.0

    def forward(self, hidden):
        normed = self.norm(hidden)
        query = self.sharpness * self.query(normed)
        return hidden + self.out(F.scaled_dot_product_attention(query, self.key(normed), self.value(normed)))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)

    def forward(self, words):
        hidden = self.words(words) + self.places(torch.arange(LENGTH))
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(self.norm(hidden[:, 0]))


model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

for step in range(1, 601):
    words = torch.randint(WORDS, (64, LENGTH))
    shares = F.one_hot(words, WORDS).float().mean(1)
    loss = F.cross_entropy(model(words), shares)  # which share of the text is each word?
    if step > 200:
        for block in model.blocks:
            block.sharpness *= 1.02
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
