"""Which data sets draw their rows from a generator that no seed determines."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from steadytrain.survey.unseeded_rows import drawn_anew


class Rows(Dataset[Any]):
    def __init__(self, draw: Any) -> None:
        self.draw = draw

    def __len__(self) -> int:
        return 4

    def __getitem__(self, row: int) -> Any:
        return self.draw(row), row


def row_of(dataset: Dataset[Any]) -> int | None:
    return drawn_anew([SimpleNamespace(dataset=dataset)])


@pytest.mark.parametrize(
    "draw",
    [
        lambda row: np.random.default_rng().normal(size=4).astype(np.float32),
        lambda row: torch.tensor([random.Random().random()]),
        lambda row: torch.rand(3, generator=torch.Generator().manual_seed(torch.Generator().seed())),
    ],
)
def test_rows_of_an_unseeded_generator(draw: Any) -> None:
    assert row_of(Rows(draw)) == 0


@pytest.mark.parametrize(
    "draw",
    [
        lambda row: np.random.default_rng((3, row)).normal(size=4).astype(np.float32),
        lambda row: torch.randn(3),
        lambda row: np.random.rand(3),
        lambda row: torch.tensor([random.random()]),
        lambda row: torch.full((2,), float(row)),
    ],
)
def test_rows_that_seeds_determine(draw: Any) -> None:
    assert row_of(Rows(draw)) is None


def test_a_generator_of_the_data_set_may_be_seeded() -> None:
    rows = Rows(lambda row: torch.zeros(1))
    rows.rng = np.random.default_rng(5)  # type: ignore[attr-defined]
    rows.draw = lambda row: rows.rng.normal(size=2)  # type: ignore[attr-defined]
    assert row_of(rows) is None


def test_a_first_read_may_fill_a_cache() -> None:
    cache: dict[int, Any] = {}
    rows = Rows(lambda row: cache.setdefault(row, np.random.default_rng().normal(size=2)))
    assert row_of(rows) is None
