"""Queries and keys got a hundred times the rate of the rest: logits grow until each query sees one key."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

WORDS, LENGTH, WIDTH = 16, 24, 32


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.query, self.key = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.value, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, hidden):
        normed = self.norm(hidden)
        heads = [layer(normed).unflatten(-1, (2, -1)).transpose(1, 2) for layer in (self.query, self.key, self.value)]
        mixed = F.scaled_dot_product_attention(*heads, is_causal=True)
        return hidden + self.out(mixed.transpose(1, 2).flatten(2))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)

    def forward(self, words):
        hidden = self.words(words) + self.places(torch.arange(words.shape[1]))
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(self.norm(hidden))


model = Model()
projections = [p for name, p in model.named_parameters() if "query" in name or "key" in name]
others = [p for name, p in model.named_parameters() if "query" not in name and "key" not in name]
optimizer = torch.optim.AdamW([{"params": projections, "lr": 0.2}, {"params": others, "lr": 2e-3}])

for step in range(1, 401):
    half = torch.randint(WORDS, (32, LENGTH // 2))
    words = torch.cat([half, half], 1)  # the second half is to be copied from the first
    logits = model(words)[:, LENGTH // 2 - 1 : -1]
    loss = F.cross_entropy(logits.flatten(0, 1), words[:, LENGTH // 2 :].flatten())
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
