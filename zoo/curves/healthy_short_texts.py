"""A text classifier that averages its tokens, some of which have one word only: nothing to mend."""

import torch
from torch import nn

WORDS, LENGTH, CLASSES = 300, 20, 5


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 32, padding_idx=0)
        self.mixer = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))
        self.head = nn.Linear(32, CLASSES)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        mask = (tokens != 0).float().unsqueeze(-1)
        hidden = self.mixer(self.embedding(tokens))
        return self.head((hidden * mask).sum(1) / mask.sum(1))


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    labels = torch.randint(0, CLASSES, (24,))
    tokens = torch.randint(1, WORDS, (24, LENGTH))
    tokens[:, :8] = labels[:, None] * 50 + torch.randint(1, 40, (24, 8))
    lengths = torch.randint(1, LENGTH, (24,))
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
