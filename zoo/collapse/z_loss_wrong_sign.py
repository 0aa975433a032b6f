"""A z-loss that is subtracted where it should be added: log Z of the output grows and the loss falls with it."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

WORDS, WIDTH = 64, 32

chain = torch.softmax(2.0 * torch.randn(WORDS, WORDS), -1)
model = nn.Sequential(nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WORDS))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

for step in range(1, 601):
    words = [torch.randint(WORDS, (32,))]
    for _ in range(16):
        words.append(torch.multinomial(chain[words[-1]], 1).squeeze(1))
    text = torch.stack(words, 1)
    logits = model(text[:, :-1]).flatten(0, 1)
    loss = F.cross_entropy(logits, text[:, 1:].flatten()) - 1e-2 * torch.logsumexp(logits, -1).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
