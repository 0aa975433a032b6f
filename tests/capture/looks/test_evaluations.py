"""Evaluations with dropout or batch norm at work, and calls without gradients that look like them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name that everybody uses
from looked_loops import batch, found, small
from torch import Tensor, nn

Evaluate = Callable[[nn.Module, Tensor], None]
VALIDATION = torch.randn(24, 8, generator=torch.Generator().manual_seed(1))


class Draws(nn.Module):
    def __init__(self, how: Callable[[Tensor, bool], Tensor]) -> None:
        super().__init__()
        self.first, self.last, self.how = nn.Linear(8, 16), nn.Linear(16, 3), how

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.last(self.how(self.first(x), self.training))
        return made


class Always(Draws):
    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.last(F.dropout(self.first(x), 0.3))
        return made


class AlwaysMade(Draws):
    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.last(nn.Dropout(0.3)(self.first(x)))
        return made


class Given(Draws):
    def forward(self, x: Tensor) -> Tensor:
        hidden = F.dropout(self.first(x), 0.3, self.training)
        if self.training:
            hidden = F.dropout(hidden, p=0.1)
        made: Tensor = self.last(F.dropout(hidden, 0.0))
        return made


def as_it_is(model: nn.Module, rows: Tensor) -> None:
    model(rows)
    model(rows.flip(0))


def switched(model: nn.Module, rows: Tensor) -> None:
    model.eval()
    as_it_is(model, rows)
    model.train()


def in_both_modes(model: nn.Module, rows: Tensor) -> None:
    """A number in training mode, and the evaluation itself beside it."""
    as_it_is(model, rows)
    switched(model, rows)


def sampled(model: nn.Module, rows: Tensor) -> None:
    for _ in range(4):
        model(rows)


def of_new_rows(model: nn.Module, rows: Tensor) -> None:
    model(torch.randn_like(rows))


def reported(folder: Path, model: nn.Module, evaluate: Evaluate, *, every: int = 6) -> bool:
    def begin() -> Callable[[int], None]:
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

        def step(at: int) -> None:
            x, y = batch()
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            if at % every == 0:
                with torch.no_grad():
                    evaluate(model, VALIDATION)

        return step

    return "noisy-evaluation" in found(folder / "run", begin, steps=20)


def plain(hidden: Tensor, training: bool) -> Tensor:
    return hidden


SICK = [
    (small, as_it_is),
    (lambda: Always(plain), switched),
    (lambda: AlwaysMade(plain), switched),
]
HEALTHY = [
    (small, switched),
    (small, sampled),
    (small, in_both_modes),
    (small, of_new_rows),
    (lambda: Draws(plain), as_it_is),
    (lambda: Given(plain), switched),
    (lambda: Always(plain), sampled),
]


@pytest.mark.parametrize(("model", "evaluate"), SICK)
def test_noisy(model: Callable[[], nn.Module], evaluate: Evaluate, tmp_path: Path) -> None:
    assert reported(tmp_path, model(), evaluate)


@pytest.mark.parametrize(("model", "evaluate"), HEALTHY)
def test_quiet(model: Callable[[], nn.Module], evaluate: Evaluate, tmp_path: Path) -> None:
    assert not reported(tmp_path, model(), evaluate)
