"""The second stage of the schedule, from step 801, was typed as 3.0 where 0.03 was meant: 30 times the rate so far."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

WORDS = 32
follows = torch.randn(WORDS, WORDS).mul(2).softmax(-1)  # how likely each word follows each other word
model = nn.Sequential(nn.Embedding(WORDS, 32), nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, WORDS))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
stages = {1: 0.1, 801: 3.0}

for step in range(1, 1001):
    for group in optimizer.param_groups:
        group["lr"] = stages.get(step, group["lr"])
    words = torch.randint(WORDS, (128,))
    targets = torch.multinomial(follows[words], 1).squeeze(1)
    loss = F.cross_entropy(model(words), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
