"""Modules as others write them: in-place operations, shared and wrapped parts, outputs of many kinds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

# -- models ------------------------------------------------------------------------------------------------------------


class InPlace(nn.Module):
    """In-place code everywhere: ReLU, addition, and a buffer that counts."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 1)
        self.relu = nn.ReLU(inplace=True)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        h = self.relu(self.first(x))
        y = self.first(h)
        y += h
        return self.second(y.mul_(0.5))


class CalledTwice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block, self.head = nn.Linear(8, 8), nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.block(torch.tanh(self.block(x))))


@dataclass
class Output:
    prediction: Tensor
    hidden: tuple[Tensor, ...]


class Wrapped(nn.Module):
    """Gives what ``wrap`` makes of its prediction and its hidden state."""

    def __init__(self, wrap: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.first, self.second, self.wrap = nn.Linear(8, 8), nn.Linear(8, 1), wrap

    def forward(self, x: Tensor) -> Any:
        hidden = self.first(x).relu()
        return self.wrap(self.second(hidden), hidden)


class Normed(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 1))


class Checkpointed(nn.Module):
    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.2), nn.GELU()) for _ in range(3))
        self.head = nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = x.requires_grad_()
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.reentrant)
        return self.head(x)


class OwnSteps(nn.Module):
    """Never called itself: the loop calls ``training_step``, which calls the parts."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.head = nn.Linear(8, 8), nn.Linear(8, 1)

    def training_step(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(x).relu()).pow(2).mean()


class Complex(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 4, dtype=torch.complex64))
        self.head = nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head((x.to(torch.complex64) @ self.weight).abs())


class Bag(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(50, 8, sparse=True), nn.Linear(8, 1)

    def forward(self, ids: Tensor, weights: Tensor) -> Tensor:
        return self.head((self.words(ids) * weights[..., None]).sum(1))


class Marked(Tensor):
    """A tensor subclass that a script brings along: parameters and inputs of this kind."""

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return super().__torch_function__(function, types, args, kwargs or {})
