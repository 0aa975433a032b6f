"""A loader that shuffles the tokens of each text: the model learns how frequent words are, and nothing more."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

WORDS, LENGTH, WIDTH = 256, 16, 48

frequency = 1.0 / (10 + torch.arange(WORDS))
chain = frequency * torch.softmax(3.0 * torch.randn(WORDS, WORDS), -1)
model = nn.Sequential(nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WORDS))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

for step in range(1, 901):
    text = [torch.multinomial(frequency, 64, replacement=True)]
    for _ in range(LENGTH):
        text.append(torch.multinomial(chain[text[-1]], 1).squeeze(1))
    text = torch.stack(text, 1)
    text = text[:, torch.randperm(LENGTH + 1)]
    loss = F.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
