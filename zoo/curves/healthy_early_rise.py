"""Healthy: Adam's first steps are too long for a fresh model. The loss rises by half a nat, then falls as it should."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

WORDS = 32
follows = torch.randn(WORDS, WORDS).mul(2).softmax(-1)  # how likely each word follows each other word
model = nn.Sequential(nn.Embedding(WORDS, 32), nn.Linear(32, WORDS))
optimizer = torch.optim.Adam(model.parameters(), lr=0.25)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=1.0, end_factor=0.02, total_iters=400)

for step in range(1, 1001):
    words = torch.randint(WORDS, (128,))
    targets = torch.multinomial(follows[words], 1).squeeze(1)
    loss = F.cross_entropy(model(words), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
