"""Healthy: four words to a batch and rare words among them, so that the loss jumps about as it should."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

WORDS = 64
follows = (1 / torch.arange(1.0, WORDS + 1))[torch.rand(WORDS, WORDS).argsort(1)]  # Zipf's law, in an order of its own
model = nn.Sequential(nn.Embedding(WORDS, 32), nn.Linear(32, WORDS))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

for step in range(1, 1501):
    words = torch.randint(WORDS, (4,))
    targets = torch.multinomial(follows[words], 1).squeeze(1)
    loss = F.cross_entropy(model(words), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
