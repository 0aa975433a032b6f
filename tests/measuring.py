"""One measurement of module outputs, as the watcher drives it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from steadytrain.capture.hooks.fail_open import Guard
from steadytrain.capture.tensors.activations import Activations, Taken
from steadytrain.core.model import Reading


def untold(text: str) -> None:
    """For a guard that must have nothing to tell."""
    raise AssertionError(text)


def measure(model: nn.Module, train: Callable[[], Any], *, histograms: bool = False) -> Taken:
    """What one armed step of ``model`` gave; ``train`` is its forward and loss."""
    activations = Activations(Guard(untold))
    activations.arm([model], histograms=histograms)
    train()
    readback = activations.take()
    activations.remove()
    assert readback is not None, "nothing was measured"
    return readback.result()


def cell(reading: Reading, row: str, column: str) -> float:
    return float(reading.values[reading.rows.index(row), reading.columns.index(column)])
