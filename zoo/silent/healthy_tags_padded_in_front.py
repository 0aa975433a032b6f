"""Words and tags are padded in front."""

import torch
from torch import nn
from torch.nn import functional

torch.manual_seed(0)
torch.set_num_threads(1)

WORDS, TAGS = 40, 5
tag_of = torch.randint(TAGS, (WORDS,))


def batch(rows=16, width=14):
    ids, labels = [], []
    for _ in range(rows):
        words = torch.randint(1, WORDS, (int(torch.randint(4, width + 1, ())),))
        gap = width - len(words)
        ids.append(functional.pad(words, (gap, 0)))
        labels.append(functional.pad(tag_of[words], (gap, 0), value=-100))
    return torch.stack(ids), torch.stack(labels)


model = nn.Sequential(nn.Embedding(WORDS, 24), nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, TAGS))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(1, 121):
    ids, labels = batch()
    loss = functional.cross_entropy(model(ids).flatten(0, 1), labels.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(f"step {step}  loss {loss.item():.3f}")
