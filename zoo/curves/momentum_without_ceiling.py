"""Momentum is warmed up and nobody wrote where it ends: past 1 the loss drifts off, and half precision overflows."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

WORDS = 32
follows = torch.randn(WORDS, WORDS).mul(2).softmax(-1)  # how likely each word follows each other word
model = nn.Sequential(nn.Embedding(WORDS, 32), nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, WORDS))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.85)

for step in range(1, 1501):
    for group in optimizer.param_groups:
        group["momentum"] = 0.85 + 0.0002 * step
    words = torch.randint(WORDS, (128,))
    targets = torch.multinomial(follows[words], 1).squeeze(1)
    logits = model(words).half().float()  # as a half-precision head would give them
    loss = F.cross_entropy(logits, targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
