"""Weights in bfloat16 with nothing in float32 beside them, at a rate of 1e-5: most updates are rounded away."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

WORDS = 64
follows = torch.randn(WORDS, WORDS).mul(2).softmax(-1)  # how likely each word follows each other word
model = nn.Sequential(
    nn.Embedding(WORDS, 64), nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, WORDS)
).bfloat16()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

for step in range(1, 401):
    words = torch.randint(WORDS, (128,))
    targets = torch.multinomial(follows[words], 1).squeeze(1)
    loss = F.cross_entropy(model(words).float(), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
