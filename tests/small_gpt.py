"""A training script: a small GPT (tied embeddings, dropout, in-place code), compiled in the way that is asked for.

It prints every step's losses, gradients, weights and random state as hashes, and what the compiler counted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from fingerprint import Training, seed

WORDS, WIDTH, BLOCKS = 40, 16, 1


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm(x)).unsqueeze(1).chunk(3, -1)
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True).squeeze(1)
        x = x + functional.dropout(self.out(attended), 0.1, self.training)
        h = self.up(x)
        y = functional.gelu(h)
        y += h
        return x + self.down(y.mul_(0.5))


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(logits[:, :-1].flatten(0, 1), targets[:, 1:].flatten())


def train(variant: str) -> list[str]:
    """Train with ``variant``'s way of compiling; returns the diary."""
    seed(0)
    model: Any = GPT()
    call: Callable[..., Tensor] = model
    criterion: Callable[..., Tensor] = cross_entropy
    if variant == "model-first":
        call = torch.compile(model, fullgraph=True)
    if variant == "method-first":
        model.compile(fullgraph=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    if variant == "model-last":
        call = torch.compile(model, fullgraph=True)
    if variant == "method-last":
        model.compile(fullgraph=True)
    if variant == "blocks":
        for block in model.blocks:
            block.compile(fullgraph=True)
    if variant == "loss":
        criterion = torch.compile(cross_entropy, fullgraph=True)

    def backward(ids: Tensor) -> Tensor:
        loss = criterion(call(ids), ids)
        loss.backward()
        return loss

    def update() -> None:
        optimizer.step()

    if variant == "step":
        backward = torch.compile(backward)
    if variant == "optimizer":
        update = torch.compile(update)
    training = Training()
    training.owns(model, optimizer)
    for step in training.steps():
        optimizer.zero_grad()
        ids = torch.randint(WORDS, (4, 12))
        if variant == "accumulation":
            for rows in ids.chunk(2):
                loss = criterion(call(rows), rows)
                (loss / 2).backward()
        elif variant == "autocast":
            with torch.autocast("cpu", torch.bfloat16):
                loss = criterion(call(ids), ids)
            loss.backward()
        else:
            loss = backward(ids)
        training.went_back(step, loss)
        update()
        training.updated(step)
    return training.lines


if __name__ == "__main__":
    torch.set_num_threads(1)
    for asked in sys.argv[1:]:
        print(asked, *train(asked), sep="\n")
    if "torch._dynamo" in sys.modules:
        from torch._dynamo.utils import counters

        print(counters["stats"]["unique_graphs"], dict(counters["graph_break"]))
