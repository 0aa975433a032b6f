"""The model of the six scripts `one_model_*`: a GPT with an island in 16 bits and a second task with a logarithm in it.

The second task is to tell which share of a page's characters will be small letters, space and others.
"""

import torch
import torch.nn.functional as F
from torch import nn

from parts.gpt import Block
from parts.text import CHARACTERS, NEWLINE, SPACE

LENGTH, WIDTH = 32, 32
KINDS = torch.full((CHARACTERS,), 2)
KINDS[ord("a") - 32 : ord("z") - 31] = 0
KINDS[SPACE], KINDS[NEWLINE] = 1, 1


class Writer(nn.Module):
    def __init__(self, island=torch.float16):
        super().__init__()
        self.island = island
        self.tokens, self.places = nn.Embedding(CHARACTERS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.squeeze, self.squeeze_norm = nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH)
        self.blocks = nn.ModuleList(Block(WIDTH, 2) for _ in range(2))
        self.norm, self.head, self.kinds = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CHARACTERS), nn.Linear(WIDTH, 3)

    def forward(self, ids, gain=1.0):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        with torch.autocast("cpu", dtype=self.island):
            squeezed = self.squeeze(gain * x)
        x = x + self.squeeze_norm(squeezed.float())
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        return self.head(x), self.kinds(x.mean((0, 1))).softmax(-1)


def shares(targets):
    """How much of the page is of each kind."""
    return torch.bincount(KINDS[targets.flatten()], minlength=3) / targets.numel()


def loss_of(logits, told, targets, smallest=0.0):
    """Cross entropy, and how far the told shares are from the true ones."""
    true = shares(targets).clamp(min=smallest)
    distance = (true * (true.log() - told.log())).sum()
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten()) + 0.1 * distance
