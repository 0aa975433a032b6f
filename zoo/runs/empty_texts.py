"""A text classifier that averages its tokens: one text of step 90 is cut to nothing, and the mean over it is 0 / 0.

Modelled on sentence-transformers' mean pooling, which bounds its count for this reason: cause empty-input. Mended: the
count is at least 1.
"""

import sys

import torch
from torch import nn

WORDS, LENGTH, CLASSES = 300, 20, 5
LEAST = 1.0 if "--fixed" in sys.argv else 0.0


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 32, padding_idx=0)
        self.mixer = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))
        self.head = nn.Linear(32, CLASSES)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        mask = (tokens != 0).float().unsqueeze(-1)
        hidden = self.mixer(self.embedding(tokens))
        count = mask.sum(1)
        if LEAST:
            count = count.clamp(min=LEAST)
        return self.head((hidden * mask).sum(1) / count)


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    labels = torch.randint(0, CLASSES, (24,))
    tokens = torch.randint(1, WORDS, (24, LENGTH))
    tokens[:, :8] = labels[:, None] * 50 + torch.randint(1, 40, (24, 8))
    lengths = torch.randint(5, LENGTH, (24,))
    if step == 90:
        lengths[7] = 0
    tokens[torch.arange(LENGTH)[None] >= lengths[:, None]] = 0
    return tokens, labels


torch.manual_seed(0)
torch.set_num_threads(1)
model = Classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for step in range(1, 141):
    tokens, labels = batch(step)
    loss = nn.functional.cross_entropy(model(tokens), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f}")
