"""A small model that writes the digits of a sum, and its data: what the tests beside it hold to their properties."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

WORDS, LENGTH = 14, 12  # ten digits, plus, equals, end, padding
PLUS, EQUALS, END, PADDING = 10, 11, 12, 13


class Adder(nn.Module):
    """A transformer with two blocks. forward: token ids [rows, positions] -> logits [rows, positions, words]."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(WORDS, width), nn.Embedding(LENGTH, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True, norm_first=True, dropout=0.1)
            for _ in range(2)
        )
        self.head = nn.Linear(width, WORDS)

    def forward(self, ids: Tensor) -> Tensor:
        length = ids.shape[1]
        hidden = self.token(ids) + self.position(torch.arange(length, device=ids.device))
        mask = torch.full((length, length), float("-inf"), device=ids.device).triu(1)
        for block in self.blocks:
            hidden = block(hidden, src_mask=mask)
        return self.head(hidden)


def loss_of(model: nn.Module, ids: Tensor) -> Tensor:
    """The mean cross-entropy of the next tokens, without padding."""
    logits = model(ids[:, :-1])
    return functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), ignore_index=PADDING)


def sums(rows: int, *, seed: int) -> Tensor:
    """``12+7=19`` and the like as ids, padded on the right to ``LENGTH``."""
    chance = torch.Generator().manual_seed(seed)
    found = torch.full((rows, LENGTH), PADDING)
    for row in range(rows):
        one, other = torch.randint(0, 100, (2,), generator=chance).tolist()
        ids = [*map(int, str(one)), PLUS, *map(int, str(other)), EQUALS, *map(int, str(one + other)), END]
        found[row, : len(ids)] = torch.tensor(ids)
    return found


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW; matrices decay, all else does not."""
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    return torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}], lr=3e-4
    )
