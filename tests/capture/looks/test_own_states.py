"""A load of the model's own tensors is reported, also after the last update; copies and round trips are not."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from looked_loops import adam, batch, small, update  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from watching import watching  # noqa: E402


def names(folder: Path, kept: Callable[[nn.Module], Any]) -> set[str]:
    model = small()
    optimizer = adam(model)
    with watching(folder / "run", "observe") as watcher:
        best = None
        for at in range(1, 13):
            x, y = batch()
            update(optimizer, functional.cross_entropy(model(x), y))
            best = kept(model) if at == 8 else best
        model.load_state_dict(best)
    return {one.name for one in watcher.symptoms}


def test_what_was_not_copied_is_told(tmp_path: Path) -> None:
    assert "uncopied-state" in names(tmp_path, lambda model: model.state_dict())


@pytest.mark.parametrize(
    "kept",
    [
        lambda model: copy.deepcopy(model.state_dict()),
        lambda model: {name: one.clone() for name, one in model.state_dict().items()},
    ],
)
def test_what_was_copied_is_not(kept: Callable[[nn.Module], Any], tmp_path: Path) -> None:
    assert "uncopied-state" not in names(tmp_path, kept)


def test_a_round_trip_on_one_line_is_not(tmp_path: Path) -> None:
    model = small()
    optimizer = adam(model)
    with watching(tmp_path / "run", "observe") as watcher:
        for _ in range(8):
            x, y = batch()
            update(optimizer, functional.cross_entropy(model(x), y))
            model.load_state_dict(model.state_dict())
    assert "uncopied-state" not in {one.name for one in watcher.symptoms}
