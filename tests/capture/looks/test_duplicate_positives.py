"""Copies among the rows that a contrastive loss tells apart."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402

from steadytrain.capture.looks.duplicate_positives import duplicate_rows  # noqa: E402
from steadytrain.capture.looks.loss_graph import Likelihood  # noqa: E402

PLACES = torch.arange(16)
QUERIES = 3 * torch.arange(16 * 5).reshape(16, 5)
TITLES = torch.randint(16, 900, (4, 6), generator=torch.Generator().manual_seed(0)).repeat_interleave(4, 0)
POSITIONS = torch.arange(20).expand(16, 20)


def share(targets: Tensor, *looked_up: Tensor) -> float | None:
    return dict(duplicate_rows([Likelihood(targets, -100, 16)], looked_up)).get("duplicate-positives")


def test_titles_that_stand_four_times() -> None:
    assert share(PLACES, QUERIES, POSITIONS, TITLES) == 0.75
    assert share(PLACES, QUERIES, POSITIONS) == 0.0
    assert share(PLACES, QUERIES, TITLES[:1].expand(16, 6)) == 1 - 1 / 16


@pytest.mark.parametrize(
    ("targets", "ids"),
    [
        (torch.zeros(16, dtype=torch.long), TITLES),  # classes
        (PLACES[:4], TITLES[:4]),  # too few
        (PLACES, TITLES % 2),  # segments
        (PLACES, POSITIONS),
        (PLACES, TITLES[:, 0]),
        (PLACES, TITLES[:8]),
    ],
)
def test_what_is_not_judged(targets: Tensor, ids: Tensor) -> None:
    assert share(targets, ids) is None
