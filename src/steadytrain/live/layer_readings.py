"""Which layers look worst in the newest readings: by the tables ``gradients``, ``tensors`` and ``modules``.

A layer is a parameter. Its gradient is compared with the median of its own last readings, because norms of different
layers differ by orders of magnitude. Bounded: the last ``READINGS_MAX`` readings, and fewer of very many rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from steadytrain.core.model import GRADIENT_ABSENT, Table
from steadytrain.storage.table_tail import TableTail

READINGS_MAX = 64
READINGS_MIN = 8
"""With fewer readings the median is that of the start of a run, and is not shown."""

VALUES_MAX = 1 << 20
LAYERS_MAX = 200


@dataclass(frozen=True)
class LayerState:
    """A parameter. ``peak`` is the largest of its last gradient norms over their median; None: not known.

    ``nonfinite`` is True if any of its last gradients was not finite: a look once a second misses a single step.
    """

    name: str
    gradient_norm: float | None
    peak: float | None
    update_ratio: float | None
    nonfinite: bool


@dataclass(frozen=True)
class LayerStates:
    """The worst parameters first, at most ``LAYERS_MAX`` of ``total``, at ``step``.

    ``headroom`` is the largest output of a module as a share of its dtype's range, with the module's name.
    ``unchanged`` is the largest share of lost updates, with the parameter's name.
    """

    step: int | None = None
    total: int = 0
    layers: tuple[LayerState, ...] = ()
    headroom: tuple[str, float] | None = None
    unchanged: tuple[str, float] | None = None


class LayerFollower:
    """Follows the tables below ``folder``, those of one stream."""

    def __init__(self, folder: Path) -> None:
        self._gradients = TableTail(folder / "gradients", readings_max=READINGS_MAX)
        self._tensors = TableTail(folder / "tensors", readings_max=1)
        self._modules = TableTail(folder / "modules", readings_max=1)
        self._rows: tuple[str, ...] = ()
        self._recent: NDArray[np.float32] = np.zeros((0, 0), np.float32)
        self._step: int | None = None
        self._newest: dict[str, Table] = {}
        self._states = LayerStates()

    def read(self) -> LayerStates:
        """
        Raises:
            UsageError: a table cannot be read.
        """
        gradients, tensors, modules = self._gradients.read(), self._tensors.read(), self._modules.read()
        if gradients is None and tensors is None and modules is None:
            return self._states
        if gradients is not None:
            self._add(gradients)
        for table in (tensors, modules):
            if table is not None:
                self._newest[table.name] = table
        self._states = self._made()
        return self._states

    def _add(self, table: Table) -> None:
        norms = table.values[:, :, table.columns.index("norm")] if "norm" in table.columns else table.values[:, :, 0]
        if table.rows != self._rows:
            self._rows, self._recent = table.rows, norms[:0]
        room = max(READINGS_MIN, min(READINGS_MAX, VALUES_MAX // max(1, len(table.rows))))
        self._recent = np.concatenate([self._recent, norms])[-room:]
        self._step = int(table.steps[-1])

    def _made(self) -> LayerStates:
        recent = self._recent
        newest = recent[-1] if len(recent) else np.zeros(0, np.float32)
        here = newest != GRADIENT_ABSENT
        bad = ((recent != GRADIENT_ABSENT) & ~np.isfinite(recent)).any(axis=0)
        peaks = _peaks(recent) if len(recent) >= READINGS_MIN else np.full(len(newest), np.nan)
        weight = np.nan_to_num(np.where(np.isnan(peaks), newest, peaks), nan=0.0, posinf=0.0)
        order = np.lexsort((-np.where(here, weight, -1.0), ~bad))[:LAYERS_MAX]
        ratios = _cells(self._newest.get("tensors"), "update_ratio")
        layers = tuple(
            LayerState(
                name=self._rows[at],
                gradient_norm=float(newest[at]) if here[at] else None,
                peak=float(peaks[at]) if np.isfinite(peaks[at]) else None,
                update_ratio=ratios.get(self._rows[at]),
                nonfinite=bool(bad[at]),
            )
            for at in order.tolist()
        )
        headroom = _largest(_cells(self._newest.get("modules"), "headroom"))
        unchanged = _largest(_cells(self._newest.get("tensors"), "unchanged_share"))
        return LayerStates(self._step, len(self._rows), layers, headroom, unchanged)


def _peaks(recent: NDArray[np.float32]) -> NDArray[np.float64]:
    """The largest over the median of each column's finite norms above zero, NaN if it has none."""
    usable = np.isfinite(recent) & (recent > 0)
    # Sorting with Inf for what is left out takes a tenth of the time of numpy's nanmedian.
    ordered = np.sort(np.where(usable, recent, np.inf), axis=0)
    middle = np.maximum(usable.sum(axis=0) - 1, 0) // 2
    median = np.take_along_axis(ordered, middle[None, :], axis=0)[0].astype(np.float64)
    largest = np.where(usable, recent, 0.0).max(axis=0)
    return np.where(np.isfinite(median), largest / median, np.nan)


def _cells(table: Table | None, column: str) -> dict[str, float]:
    if table is None or column not in table.columns:
        return {}
    values = table.values[-1, :, table.columns.index(column)]
    return {row: float(value) for row, value in zip(table.rows, values, strict=True) if not np.isnan(value)}


def _largest(cells: dict[str, float]) -> tuple[str, float] | None:
    return max(cells.items(), key=lambda cell: cell[1]) if cells else None
