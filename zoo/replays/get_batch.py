"""Batches cut out of one long array at random places, evaluations between the steps, no data loader."""

import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
text = np.random.default_rng(0).integers(0, 32, 5000)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(32, 16)
        self.head = nn.Linear(16, 32)

    def forward(self, tokens, targets=None):
        logits = self.head(self.embed(tokens).cumsum(1) / 8)
        return logits, nn.functional.cross_entropy(logits.view(-1, 32), targets.view(-1))


def get_batch():
    at = torch.randint(len(text) - 9, (8,))
    tokens = torch.stack([torch.from_numpy(text[i : i + 8]) for i in at])
    targets = torch.stack([torch.from_numpy(text[i + 1 : i + 9]) for i in at])
    return tokens, targets


@torch.no_grad()
def evaluate():
    model.eval()
    losses = [model(*get_batch())[1].item() for _ in range(5)]
    model.train()
    return sum(losses) / 5


model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95))
for step in range(1, 151):
    if step % 20 == 0:
        evaluate()
    logits, loss = model(*get_batch())
    if step == 150:
        loss = loss + (logits.sum() * 0).sqrt()  # <- bites
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
