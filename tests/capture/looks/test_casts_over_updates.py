"""The look reports copies that autocast keeps over an update once, and those of one step never."""

from __future__ import annotations

import contextlib
import linecache
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from steadytrain.capture.looks import stale_casts
from steadytrain.capture.looks.stale_casts import StaleCasts

Open = Callable[[], contextlib.AbstractContextManager[Any]]


def half(**options: Any) -> contextlib.AbstractContextManager[Any]:
    return torch.autocast("cpu", dtype=torch.bfloat16, **options)


def found(model: nn.Module, around: Open, inside: Open, *shape: int, steps: int = 3) -> list[tuple[str, float]]:
    """What the look reports of a training with these contexts around the loop and in each step."""
    optimizer, look = torch.optim.SGD(model.parameters(), lr=0.5), StaleCasts()
    stream = cast(Any, SimpleNamespace(roots=lambda: [model]))
    rows = []
    with around():
        for _ in range(steps):
            with inside():
                loss = model(torch.randn(shape)).float().square().mean()
                optimizer.zero_grad()
                loss.backward()
                rows += list(look.rows(stream))
                optimizer.step()
    return rows


MODELS = [
    (lambda: nn.Linear(6, 4), (8, 6)),
    (lambda: nn.Conv2d(2, 4, 3), (8, 2, 6, 6)),
    (lambda: nn.Conv1d(4, 4, 3, groups=2), (8, 4, 6)),
]


@pytest.mark.parametrize(("made", "shape"), MODELS, ids=["linear", "convolution", "groups"])
def test_a_context_around_the_loop_is_told_once(
    made: Callable[[], nn.Module], shape: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "train.py"
    file.write_text("import torch\nwith torch.autocast('cpu'):\n    pass\n", encoding="utf-8")
    linecache.checkcache(str(file))
    monkeypatch.setattr(stale_casts, "source_files", lambda: {str(file): {}})
    assert found(made(), half, contextlib.nullcontext, *shape) == [("stale-casts:train.py:2", 1.0)]


@pytest.mark.parametrize(
    ("around", "inside"),
    [
        (contextlib.nullcontext, half),
        (contextlib.nullcontext, contextlib.nullcontext),
        (lambda: half(cache_enabled=False), contextlib.nullcontext),
        (lambda: half(enabled=False), contextlib.nullcontext),
    ],
    ids=["in each step", "none", "without a cache", "switched off"],
)
def test_others_are_not(around: Open, inside: Open) -> None:
    assert found(nn.Linear(6, 4), around, inside, 8, 6) == []


def test_a_context_that_is_off_keeps_the_copies_of_those_inside() -> None:
    """The copies are given up at the end of the outermost context, whether or not it is on."""
    assert [value for _, value in found(nn.Linear(6, 4), lambda: half(enabled=False), half, 8, 6)] == [1.0]


@pytest.mark.parametrize("model", [nn.BatchNorm1d(6), nn.Linear(6, 4).requires_grad_(False), nn.Linear(6, 4).double()])
def test_weights_that_autocast_does_not_keep_are_not_looked_at(model: nn.Module) -> None:
    stream, look = cast(Any, SimpleNamespace(roots=lambda: [model])), StaleCasts()
    with half():
        assert list(look.rows(stream)) == []


def test_the_look_leaves_autocast_as_it_was() -> None:
    with half():
        model = nn.Linear(6, 4)
        list(StaleCasts().rows(cast(Any, SimpleNamespace(roots=lambda: [model]))))
        assert torch.is_autocast_cache_enabled()
        assert torch.is_autocast_enabled("cpu")
    assert not torch.is_autocast_enabled("cpu")
