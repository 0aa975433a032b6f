"""Instruction tuning: a prompt was so long that every target of step 7 was cut off and only ignored ones are left."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(32, 16), nn.Linear(16, 32))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for step in range(1, 11):
    tokens = torch.randint(0, 32, (4, 12))
    targets = tokens.roll(-1, dims=1)
    prompt = 12 if step == 7 else 5
    targets[:, :prompt] = -100
    logits = model(tokens)
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())  # <- bites
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
