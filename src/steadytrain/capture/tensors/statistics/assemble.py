"""Combines partial results that have arrived on the host into a reading of the table ``tensors``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from steadytrain.capture.tensors.statistics.norms import FLOAT32_MAX
from steadytrain.capture.tensors.statistics.passes import Passed
from steadytrain.capture.tensors.statistics.sample_statistics import SAMPLED
from steadytrain.capture.tensors.statistics.tensor_columns import COLUMNS, EXACT
from steadytrain.core.model import Reading

_PLACE = {name: place for place, name in enumerate(COLUMNS)}


@dataclass(frozen=True)
class Parts:
    """All measurements around one update, in the order of :meth:`tensors`.

    ``whole`` are the passes over whole tensors with their kind, ``samples`` rows and their columns ``SAMPLED``.
    ``epsilons`` and ``counts`` (elements) are by row. ``scale`` is the factor that the gradients carry.
    """

    names: tuple[str, ...]
    whole: Sequence[tuple[str, Passed]]
    samples: Sequence[tuple[list[int], Tensor]]
    epsilons: Mapping[int, float]
    counts: Mapping[int, int]
    scale: float

    def tensors(self) -> list[Tensor]:
        return [*(passed.partials for _, passed in self.whole), *(columns for _, columns in self.samples)]

    def reading(self, arrived: Sequence[Tensor]) -> Reading:
        """The reading, given :meth:`tensors` on the host."""
        numbers = iter([tensor.numpy().astype(np.float64) for tensor in arrived])
        values = np.full((len(self.names), len(COLUMNS)), np.nan)
        with np.errstate(all="ignore"):
            for kind, passed in self.whole:
                _write_whole(values, kind, passed.rows, next(numbers), 1.0 / self.scale if kind == "gradient" else 1.0)
            for rows, _ in self.samples:
                values[np.ix_(rows, [_PLACE[name] for name in SAMPLED])] = next(numbers)
            for row, epsilon in self.epsilons.items():
                rms = values[row, _PLACE["gradient_norm"]] / max(1, self.counts[row]) ** 0.5
                values[row, _PLACE["gradient_rms_to_epsilon"]] = rms / epsilon
        np.clip(values, -FLOAT32_MAX, FLOAT32_MAX, out=values)
        return Reading("tensors", self.names, tuple(COLUMNS), values.astype(np.float32))


def _write_whole(
    values: NDArray[np.float64], kind: str, rows: list[int], partials: NDArray[np.float64], factor: float
) -> None:
    squares, smallest, largest, total, nonfinite, finite = partials.T
    measured = np.stack([np.sqrt(squares), smallest, largest, total / finite, nonfinite]).T
    measured[:, :-1] *= factor
    measured[finite == 0, :-1] = np.nan
    values[np.ix_(rows, [_PLACE[f"{kind}_{name}"] for name in EXACT])] = measured
