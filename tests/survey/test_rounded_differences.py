"""Numbers so large that their format rounds away what is taken of them."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor

from steadytrain.survey.rounded_differences import FOUND_MAX, RoundedDifferences

LINE = "train.py:7: gaps = t[1:] - t[:-1]"
DRAW = torch.Generator().manual_seed(0)
SECONDS = (1.7e9 + 600_000 * torch.rand(8000, dtype=torch.float64, generator=DRAW)).sort().values
NEAR = 5_821_000.0 + torch.rand(400, dtype=torch.float64, generator=DRAW)


def found(name: str, *args: Any, line: str = LINE) -> dict[str, Any] | None:
    look = RoundedDifferences()
    function = getattr(Tensor, name, None) or getattr(torch, name)
    look.saw(name, args, {}, function(*args), line, 3)
    listed = look.found()
    return listed[0] if listed else None


@pytest.mark.parametrize(
    ("name", "args", "operation", "distance"),
    [
        ("__sub__", (SECONDS[1:].float(), SECONDS[:-1].float()), "difference", 128.0),
        ("sub", (NEAR[1:].float(), NEAR[:-1].float()), "difference", 0.5),
        ("diff", (SECONDS.float(),), "difference", 128.0),
        ("remainder", (SECONDS.float(), 180.0), "remainder", 128.0),
        ("__mod__", (SECONDS.float(), 60), "remainder", 128.0),
        ("sin", (SECONDS.float() / 30,), "phase", 4.0),
        (
            "__sub__",
            ((40_000 + 30 * torch.rand(64)).half(), (40_000 + 30 * torch.rand(64)).half() - 32),
            "difference",
            32.0,
        ),
    ],
)
def test_what_is_lost_in_the_rounding(name: str, args: tuple[Any, ...], operation: str, distance: float) -> None:
    one = found(name, *args)
    assert one is not None
    assert (one["operation"], one["distance"], one["line"], one["step"]) == (operation, distance, LINE, 3)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("__sub__", (SECONDS[1:], SECONDS[:-1])),  # float64
        ("__sub__", ((SECONDS - SECONDS[0]).float()[1:], (SECONDS - SECONDS[0]).float()[:-1])),
        ("__sub__", (SECONDS.float()[4000:], SECONDS.float()[:4000])),  # days apart
        ("__sub__", (SECONDS.float(), SECONDS.float())),  # nothing is left at all: the same tensor
        ("__sub__", (SECONDS.float(), 1.7e9)),  # an offset is taken off: large enough
        ("remainder", (SECONDS.float(), 86_400.0)),
        ("sin", (100 * torch.rand(64),)),
        ("__sub__", (torch.rand(64), torch.rand(64))),
        ("__sub__", (torch.randn(64).half(), torch.randn(64).half())),
        ("__sub__", (torch.arange(64), 3)),
        ("sin", (torch.full((64,), float("nan")),)),
        ("__sub__", (SECONDS.float()[:4], SECONDS.float()[1:5])),  # too few
    ],
)
def test_what_is_not(name: str, args: tuple[Any, ...]) -> None:
    assert found(name, *args) is None


def test_a_few_lines_are_enough() -> None:
    look = RoundedDifferences()
    times = SECONDS.float()
    for number in range(9):
        for _ in range(2):
            look.saw("remainder", (times, 180.0), {}, torch.remainder(times, 180.0), f"train.py:{number}: x", 1)
    assert len(look.found() or ()) == FOUND_MAX
