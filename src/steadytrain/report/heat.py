"""Heat maps of a report: one number per layer over the steps, binned to a bounded size that keeps the worst value.

A bin of several steps or layers shows a non-finite value if it has one, else its largest value: an average would hide
the one layer at the one step that went wrong. Values are float32, NaN if not measured and ``inf`` if not finite.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from steadytrain.core.model import IntArray
from steadytrain.report.layer_labels import Block, blocks, shared_beginning, shortened
from steadytrain.report.wording import clean, count, enumerated, number

COLUMNS_MAX = 200
ROWS_MAX = 200

ABSENT, LOWEST, HIGHEST, NOT_FINITE = 0, 1, 254, 255
"""Levels of a cell: not measured, the two ends of the colour scale, and not finite."""

DECADES_MAX = 8
"""A logarithmic scale spans at most this many decades below the largest value. Smaller values get the lowest colour."""

HOLD_GAPS = 2.0
"""A reading holds until the next one, but for at most this many of the adjacent gaps. A longer gap is shown as a
gap.
"""

ROUTINE_GAPS = 3
"""A gap that occurs this often is a cadence: a reading may hold for that long anywhere."""

NAMED_MAX = 3

Cells = NDArray[np.float32]


@dataclass(frozen=True)
class HeatRow:
    """A row: its short ``label``, its full ``name``, and a text with its largest value and the step."""

    label: str
    name: str
    title: str
    not_finite: bool


@dataclass(frozen=True)
class Heat:
    """A map of layers x steps. Column *i* covers the steps ``starts[i]`` to ``starts[i + 1]`` (exclusive).

    ``values`` and ``levels`` have shape ``(rows, columns)``. ``levels`` are the colours from ``low`` to ``high`` (see
    ``ABSENT``). ``not_finite`` says what a non-finite cell means, and ``captions`` what the map does not show.
    """

    name: str
    title: str
    logarithmic: bool
    rows: tuple[HeatRow, ...]
    starts: tuple[int, ...]
    values: Cells
    levels: NDArray[np.uint8]
    low: float
    high: float
    not_finite: str
    captions: tuple[str, ...]
    end: int
    """The first step that is not drawn: the last column may reach past the last step of the run."""

    def texts(self) -> list[list[str]]:
        """Each value in a few characters, "" if not measured."""
        return [[_text(value) for value in row] for row in self.values.tolist()]


def heat(
    name: str,
    title: str,
    layers: Sequence[str],
    steps: IntArray,
    values: Cells,
    *,
    logarithmic: bool,
    bounds: tuple[float, float] | None = None,
    not_finite: str = "NaN or Inf",
) -> Heat | None:
    """The map of ``values``, shape ``(readings, layers)``; None if nothing was measured.

    Args:
        layers: names in model order.
        bounds: ends of the colour scale, by default those of the values.
        not_finite: what ``inf`` in ``values`` means.
    """
    kept: NDArray[np.bool_] = np.any(~np.isnan(values), axis=0)
    if not kept.any():
        return None
    layers = [clean(layer) for layer, keep in zip(layers, kept.tolist(), strict=True) if keep]
    in_order = np.argsort(steps, kind="stable")
    steps, values = steps[in_order], values[in_order][:, kept]
    rows = blocks(layers, ROWS_MAX)
    if len(rows) == len(layers):
        rows = [Block(layer, index, index + 1) for index, layer in enumerate(layers)]
    starts, cells = over_steps(steps, np.fmax.reduceat(values, [row.start for row in rows], axis=1))
    low, high = bounds or _bounds(cells, logarithmic=logarithmic)
    return Heat(
        name=name,
        title=title,
        logarithmic=logarithmic,
        rows=_rows(rows, layers, steps, values),
        starts=tuple(starts.tolist()),
        values=cells.T,
        levels=levels(cells.T, low, high, logarithmic=logarithmic),
        low=low,
        high=high,
        not_finite=not_finite,
        captions=_captions(layers, rows, starts, steps, values),
        end=int(starts[-1]),
    )


def over_steps(steps: IntArray, values: Cells, *, columns_max: int = COLUMNS_MAX) -> tuple[IntArray, Cells]:
    """Bin ``values``, shape ``(readings, rows)``, into columns of equally many steps. Returns the column edges and the
    cells.

    A column shows the largest of its readings. A column without a reading repeats the previous one while that holds.
    """
    gaps = np.diff(steps)
    usual = int(gaps[gaps > 0].min()) if (gaps > 0).any() else 1
    first, end = int(steps[0]), int(steps[-1]) + usual
    columns = min(columns_max, (end - first) // usual)
    starts = first + (np.arange(columns + 1, dtype=np.int64) * (end - first) + columns - 1) // columns
    column_of = np.searchsorted(starts, steps, side="right") - 1
    filled, at = np.unique(column_of, return_index=True)
    cells = np.full((columns, values.shape[1]), np.nan, np.float32)
    cells[filled] = np.fmax.reduceat(values, at, axis=0)
    last = np.searchsorted(column_of, filled, side="right") - 1
    until = steps[last] + _stands(gaps, usual)[last]
    for position, column in enumerate(filled.tolist()):
        stop = filled[position + 1] if position + 1 < len(filled) else columns
        held = column + 1 + np.flatnonzero(starts[column + 1 : stop] < until[position])
        cells[held] = values[last[position]]
    return starts, cells


def levels(values: Cells, low: float, high: float, *, logarithmic: bool) -> NDArray[np.uint8]:
    """The colour of each value."""
    with np.errstate(divide="ignore", invalid="ignore"):
        place = np.log(values / low) / np.log(high / low) if logarithmic else (values - low) / (high - low)
    if not high > low:
        place = np.full_like(values, 0.5)
    scaled = LOWEST + np.clip(np.nan_to_num(place, nan=0.0), 0, 1) * (HIGHEST - LOWEST)
    found: NDArray[np.uint8] = np.rint(scaled).astype(np.uint8)
    found[np.isnan(values)] = ABSENT
    found[np.isinf(values)] = NOT_FINITE
    return found


def _text(value: float) -> str:
    if math.isnan(value):
        return ""
    return f"{value:.3g}" if math.isfinite(value) else "not finite"


def _stands(gaps: IntArray, usual: int) -> NDArray[np.float64]:
    """For how many steps each reading holds without a successor."""
    if len(gaps) < 2:
        return np.full(len(gaps) + 1, float(gaps.max(initial=usual)))
    around = np.maximum(np.append(gaps[1:], gaps[-2]), np.append(gaps[1], gaps[:-1]))
    lengths, times = np.unique(gaps, return_counts=True)
    routine = lengths[times >= ROUTINE_GAPS].max(initial=usual)
    return np.append(np.maximum(HOLD_GAPS * around, routine), usual)


def _bounds(cells: Cells, *, logarithmic: bool) -> tuple[float, float]:
    finite = cells[np.isfinite(cells)].astype(np.float64)
    if logarithmic:
        finite = finite[finite > 0]
    if not len(finite):
        return 1.0, 1.0
    high = float(finite.max())
    return max(float(finite.min()), high * 10.0**-DECADES_MAX) if logarithmic else float(finite.min()), high


def _rows(rows: Sequence[Block], layers: Sequence[str], steps: IntArray, values: Cells) -> tuple[HeatRow, ...]:
    finite = np.where(np.isfinite(values), values, -np.inf)
    peak_at = finite.argmax(axis=0)
    peak = finite.max(axis=0)
    bad = np.isinf(values)
    bad_any: NDArray[np.bool_] = np.any(bad, axis=0)
    bad_at = bad.argmax(axis=0)
    found = []
    for row, label in zip(rows, shortened([row.name for row in rows]), strict=True):
        members = np.arange(row.start, row.stop)
        worst = int(members[peak[members].argmax()])
        several = f" (largest of {len(members)} layers)" if len(members) > 1 else ""
        title = f"{row.name}{several}"
        if math.isfinite(peak[worst]):
            title += f": at most {number(peak[worst])}, at step {count(int(steps[peak_at[worst]]))}"
            title += f" in {layers[worst]}" if several else ""
        bad_members = members[bad_any[members]]
        if len(bad_members):
            first = int(bad_members[bad_at[bad_members].argmin()])
            title += f"; first not finite at step {count(int(steps[bad_at[first]]))}"
            title += f" in {layers[first]}" if several else ""
        found.append(HeatRow(label, row.name, title, bool(len(bad_members))))
    return tuple(found)


def _captions(
    layers: Sequence[str], rows: Sequence[Block], starts: IntArray, steps: IntArray, values: Cells
) -> tuple[str, ...]:
    found = []
    bad = np.isinf(values)
    if bad.any():
        first = int(bad.any(axis=1).argmax())
        names = [layers[index] for index in np.flatnonzero(bad[first]).tolist()]
        found.append(f"First not finite at step {count(int(steps[first]))}: {enumerated(names, NAMED_MAX)}.")
    finite = np.where(np.isfinite(values), values, -np.inf)
    if np.isfinite(finite).any():
        reading, layer = (int(index) for index in np.unravel_index(finite.argmax(), finite.shape))
        largest = number(float(finite[reading, layer]))
        found.append(f"Largest: {largest} in {layers[layer]} at step {count(int(steps[reading]))}.")
    widths = np.diff(starts)
    readings = f"{count(len(steps))} reading{'s' if len(steps) != 1 else ''}"
    if len(steps) > len(widths):
        found.append(f"{readings}; a column is about {count(round(float(widths.mean())))} steps and shows the largest.")
    elif len(steps) > 1 and int(widths.max()) > 1:
        found.append(f"{readings}; each holds until the next.")
    else:
        found.append(f"{readings}.")
    beginning = shared_beginning([row.name for row in rows])
    if beginning:
        found.append(f"All names begin with {beginning}")
    if len(rows) < len(layers):
        found.append(f"{count(len(layers))} layers in {count(len(rows))} rows: a row shows the largest of its block.")
    return tuple(found)
