"""Healthy: each of 64 words has one successor, so that the loss may go to zero, with large logits on the way."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

WORDS, LENGTH, WIDTH = 64, 16, 64

successor = torch.randperm(WORDS)
model = nn.Sequential(nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WORDS))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

for step in range(1, 501):
    text = [torch.randint(WORDS, (32,))]
    for _ in range(LENGTH):
        text.append(successor[text[-1]])
    text = torch.stack(text, 1)
    loss = F.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
