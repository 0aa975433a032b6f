"""A short run whose learning rate is set to a hundred times its value at step 120 of 200 and stays there."""

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
    if step == 120:
        for group in optimizer.param_groups:
            group["lr"] *= 100
    words = torch.randint(WORDS, (128,))
    targets = torch.multinomial(follows[words], 1).squeeze(1)
    loss = F.cross_entropy(model(words), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
