"""Healthy: at step 120 of 200 four batches have shuffled labels. The loss is back as soon as they are over."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

WORDS = 32
follows = torch.randn(WORDS, WORDS).mul(2).softmax(-1)  # how likely each word follows each other word
model = nn.Sequential(nn.Embedding(WORDS, 32), nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, WORDS))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

for step in range(1, 201):
    words = torch.randint(WORDS, (128,))
    targets = torch.multinomial(follows[words], 1).squeeze(1)
    if 120 <= step < 124:
        targets = targets[torch.randperm(128)]
    loss = F.cross_entropy(model(words), targets)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
