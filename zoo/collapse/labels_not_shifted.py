"""A model of bytes whose labels are its inputs, not shifted by one: it learns to copy, and the loss goes to zero."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

BYTES, LENGTH, WIDTH = 256, 16, 64

chain = torch.softmax(2.0 * torch.randn(BYTES, BYTES), -1)
model = nn.Sequential(nn.Embedding(BYTES, WIDTH), nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, BYTES))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

for step in range(1, 301):
    text = [torch.randint(BYTES, (16,))]
    for _ in range(LENGTH):
        text.append(torch.multinomial(chain[text[-1]], 1).squeeze(1))
    text = torch.stack(text, 1)
    loss = F.cross_entropy(model(text).flatten(0, 1), text.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
