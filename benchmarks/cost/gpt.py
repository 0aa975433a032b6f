"""A plain pre-norm GPT."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (the name that everybody uses)
from torch import Tensor, nn

from cost.case import Case

HEAD = 64


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        rows, length, width = hidden.shape
        split = self.qkv(self.norm1(hidden)).view(rows, length, 3, width // HEAD, HEAD)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.out(mixed.transpose(1, 2).reshape(rows, length, width))
        return hidden + self.down(F.gelu(self.up(self.norm2(hidden))))


class GPT(nn.Module):
    def __init__(self, case: Case) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(case.vocab, case.width), nn.Embedding(case.context, case.width)
        self.blocks = nn.Sequential(*(Block(case.width) for _ in range(case.layers)))
        self.norm, self.head = nn.LayerNorm(case.width), nn.Linear(case.width, case.vocab, bias=False)
        self.head.weight = self.token.weight
        nn.init.normal_(self.token.weight, std=0.02)

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        hidden = self.token(tokens) + self.position(torch.arange(tokens.shape[1], device=tokens.device))
        logits = self.head(self.norm(self.blocks(hidden)))
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())
