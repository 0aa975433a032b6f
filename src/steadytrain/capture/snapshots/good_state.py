"""Checks whether weights are finite, now and in the snapshots of a recording."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from steadytrain.capture.tensors.statistics import dense_values, exact_state, fetch, l2_norms
from steadytrain.storage.tape_files import find_recording

if TYPE_CHECKING:
    from steadytrain.capture.step.optimizer_streams import Stream


@torch.no_grad()
def nonfinite_parameters(stream: Stream) -> list[str]:
    """Names of the parameters that now hold NaN or Inf, in order."""
    pairs = zip(stream.tensor_names, stream.parameters, strict=True)
    held = [(name, values) for name, parameter in pairs if (values := dense_values(parameter)) is not None]
    norms = fetch(l2_norms([values for _, values in held]))
    suspects = [one for one, norm in zip(held, norms, strict=True) if not math.isfinite(norm)]
    return [name for name, values in suspects if not exact_state(values).finite]


def last_good_snapshot(folder: Path, before: int | None = None) -> Path | None:
    """The newest snapshot of the run or bundle at ``folder`` with only finite numbers, of a step ``before`` this one;
    None if there is none."""
    from safetensors.torch import load_file

    for shot in sorted(find_recording(folder).snapshots, key=lambda one: -one.step):
        if before is not None and shot.step >= before:
            continue
        tensors: Any = load_file(shot.tensors)
        if all(_is_finite(value) for value in _floating(tensors)):
            return shot.tensors
    return None


def _floating(tensors: dict[str, Tensor]) -> Iterator[Tensor]:
    return (value for value in tensors.values() if value.is_floating_point())


def _is_finite(value: Tensor) -> bool:
    return bool(torch.isfinite(value.float()).all())
