"""Facts of a multi-rank run from the records of its ranks: whether they took the same steps.

Each rank writes its own folder, with its gradient norm at the update and its parameter norm after it. Ranks that
average their gradients have equal norms. This launches no script. Sharded ranks differ by design from the first step
on, so parameters that were never equal give no fact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from steadytrain.core.errors import UsageError
from steadytrain.core.model import FloatArray, Window
from steadytrain.storage.rank_endings import first_end_of
from steadytrain.storage.run_folder import Run, open_run

SAME = 1e-5
"""Tolerance for the relative difference of norms: the effect of another summation order in float32, over a million
elements.
"""

MOSTLY = 0.9
STEPS_MIN = 4
RANKS_MAX = 64
NAMES_MAX = 16
WEIGHTS, SIZE = "tensors", "weight_norm"
"""The table and the column with the norm of each parameter."""


def facts_of_ranks(run: Run | None) -> dict[str, Any]:
    """The facts of all ranks; empty for a run of one process. Facts that need replicas are absent if the ranks hold
    different parameters.
    """
    world = run.description.get("world_size") if run is not None else None
    if run is None or not isinstance(world, int) or world < 2:
        return {}
    facts: dict[str, Any] = {"ranks": world, **_uneven(run)}
    everyone = [run, *_others(run)]
    windows = [one.scalars() for one in everyone]
    steps = _common([window.steps.tolist() for window in windows])
    if len(windows) < 2 or len(steps) < STEPS_MIN:
        return facts
    gradients, parameters = (_columns(windows, steps, name) for name in ("gradient_norm", "parameter_norm"))
    same_gradients, same_parameters = _same(gradients), _same(parameters)
    known = same_gradients[~np.isnan(same_gradients)]
    together = len(known) >= STEPS_MIN and float(known.mean()) >= MOSTLY
    parameters_known = same_parameters[~np.isnan(same_parameters)]
    replicas = len(parameters_known) > 0 and bool(parameters_known[0] == 1.0)
    if together:
        facts["ranks_synchronized"] = True
    elif replicas and len(known) >= STEPS_MIN and float(known.mean()) <= 1 - MOSTLY:
        facts["ranks_synchronized"] = False
    if together or replicas:
        apart = len(parameters_known) > 0 and bool(parameters_known[-1] == 0.0)
        facts["rank_parameters_differ"] = _names(everyone) or ["all parameters"] if apart else []
        facts["rank_scales_differ"] = _scales_differ(windows, steps)
    return facts


def _uneven(run: Run) -> dict[str, Any]:
    first = first_end_of(run.path)
    if first is None or first.kind != "fewer steps":
        return {}
    return {"ranks_uneven": {"rank": first.end.rank, "steps": first.end.step, "reached": first.reached}}


def _others(run: Run) -> list[Run]:
    found = []
    for place in run.ranks[: RANKS_MAX - 1]:
        try:
            found.append(open_run(place))
        except UsageError:  # a damaged rank folder must not affect the other ranks
            continue
    return [one for one in found if len(one.scalars())]


def _common(steps: Sequence[Sequence[int]]) -> list[int]:
    return sorted(set(steps[0]).intersection(*steps[1:])) if steps else []


def _columns(windows: Sequence[Window], steps: Sequence[int], signal: str) -> FloatArray:
    """Values of shape (ranks, steps), NaN if a rank has no value."""
    table = np.full((len(windows), len(steps)), np.nan)
    for rank, window in enumerate(windows):
        if signal not in window.signals:
            continue
        series = window.series(signal)
        values = dict(zip(series.steps.tolist(), series.values.tolist(), strict=True))
        table[rank] = [values.get(step, np.nan) for step in steps]
    return table


def _same(table: FloatArray) -> FloatArray:
    """For each step 1 if all ranks have the same value, 0 if not, NaN if one has none."""
    low, high = table.min(0), table.max(0)
    known = ~np.isnan(table).any(0)
    with np.errstate(invalid="ignore"):
        same = (high - low) <= SAME * np.maximum(np.abs(high), np.finfo(float).tiny)
    return np.where(known, (same | (low == high)).astype(float), np.nan)


def _scales_differ(windows: Sequence[Window], steps: Sequence[int]) -> int:
    """Number of steps at which loss scales differed between ranks, or only some ranks skipped the update."""
    scales = _same(_columns(windows, steps, "loss_scale"))
    skips = np.array([[bool(w.skipped[np.searchsorted(w.steps, step)]) for step in steps] for w in windows])
    return int(((scales == 0.0) | (skips.min(0) != skips.max(0))).sum())


def _names(everyone: Sequence[Run]) -> list[str]:
    """Parameters whose norm differs between ranks at the last reading that all ranks have; empty without such
    readings.
    """
    tables = []
    for one in everyone:
        if WEIGHTS not in one.tables():
            return []
        tables.append(one.table(WEIGHTS))
    steps = _common([table.steps.tolist() for table in tables])
    if not steps or any(SIZE not in table.columns for table in tables):
        return []
    sizes = []
    for table in tables:
        at, column = table.steps.tolist().index(steps[-1]), table.columns.index(SIZE)
        sizes.append(dict(zip(table.rows, table.values[at, :, column].tolist(), strict=True)))
    common = [name for name in sizes[0] if all(name in other for other in sizes[1:])]
    differ = [name for name in common if _same(np.array([[one[name]] for one in sizes], float))[0] == 0.0]
    return differ[:NAMES_MAX]
