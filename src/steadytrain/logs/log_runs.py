"""Split the rows of a log into runs, and convert each run to a window.

A log may hold several runs (it names them, or its steps start again), a resumed run (its steps go back and the later
rows count), rows of an evaluation between those of training, or no steps at all. Notes report each decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from steadytrain.core.errors import UsageError
from steadytrain.core.model import FloatArray, IntArray, Series, Window
from steadytrain.logs.column_names import PROGRESS_BAR, Choice, choose, loss_may_rise, name_of, role_of
from steadytrain.logs.log_rows import Rows
from steadytrain.logs.loss_parts import with_total
from steadytrain.logs.numerals import counted
from steadytrain.logs.reader import Columns, Log
from steadytrain.statistics.rolling_baseline import stride_of

RUNS_MAX = 256
METRICS_MAX = 64
RETURNS_MAX = 1_000
"""If steps go back more often than this, the log is not resumed but out of order, and gets sorted."""

UNSORTED_ROWS_MAX = 3
"""If fewer rows than this lie between two places where the steps go back, the rows have no order (or the newest comes
first)."""

STRAGGLERS_MAX = 3
"""Up to this many rows with a lower step, followed by higher ones again, were written late and start nothing new."""

JUMP_STRIDES = 10
"""A gap this many times as wide as the step distance on both sides was left by an interruption."""

EPOCHS_MAX = 1 << 20
_STEP_MAX = 2.0**53
_PER_EPOCH_SHARE = 0.9


@dataclass(frozen=True)
class _Run:
    """The rows of one run, in the log's order. ``steps`` belong to ``rows``."""

    name: str
    rows: IntArray
    steps: IntArray
    resumed: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()


def logs_of(
    rows: Rows, wanted: Columns, *, path: Path, kind: str, name: str | None = None, notes: Sequence[str] = ()
) -> tuple[Log, ...]:
    """The runs in ``rows``.

    Raises:
        UsageError: there is no loss, or a column that the user named does not exist.
    """
    if not rows.columns:
        raise UsageError(f"{path}: there are no numbers in it")
    rows = with_total(rows, wanted)
    choice = choose(rows.columns, wanted, where=path)
    training = _training_rows(rows, choice)
    base = name or name_of(path)
    told = (*notes, *rows.notes, *_told(choice, rows))
    runs: list[_Run] = []
    for label, here in _labelled(rows, training):
        runs += _split(rows, choice, here, f"{base} {label}".strip() if label else base)
    if not runs:
        raise UsageError(f"{path}: its column {choice.carriers[0]!r} has no row with a step; name it with --step")
    if len(runs) > RUNS_MAX:
        told = (*told, f"{len(runs):,} runs are in the log; the first {RUNS_MAX} were read.")
    ends = _ends([run.rows for run in runs], rows)
    logs = []
    for run, end in zip(runs[:RUNS_MAX], ends, strict=False):
        window = _window(rows, choice, run, end)
        logs.append(Log(run.name, path, kind, window, (*told, *run.notes, *_silent_end(window))))
    return tuple(logs)


def _told(choice: Choice, rows: Rows) -> list[str]:
    notes = []
    loss = choice.signals.get("loss")
    if loss is None:
        notes.append("No column looks like a training loss.")
    elif role_of(loss).tier > 0 or role_of(loss).what != "loss":
        notes.append(f"The loss is the column {loss!r}.")
    if not choice.steps:
        still = next((name for name in rows.columns if role_of(name).what == "step"), None)
        lacks = f"The column {still!r} does not count steps" if still else "The log has no steps"
        notes.append(f"{lacks}; a step is a row's position among the rows with a loss.")
    elif _are_epochs(choice):
        notes.append("The log counts epochs instead of steps; a step is an epoch here.")
    elif choice.steps[0] == PROGRESS_BAR:
        notes.append("The steps are those of the progress bar.")
    return notes


def _are_epochs(choice: Choice) -> bool:
    return choice.steps == (choice.signals.get("epoch"),)


def _silent_end(window: Window) -> list[str]:
    """A note if the loss ends early while the run continues: it may have become NaN."""
    loss = window.series("loss").steps
    if len(loss) < 2 or window.steps[-1] - loss[-1] <= JUMP_STRIDES * stride_of(loss):
        return []
    last = int(window.steps[-1])
    return [
        f"No loss after step {loss[-1]}, though the log continues to step {last}: some tools leave a NaN's cell empty."
    ]


def _training_rows(rows: Rows, choice: Choice) -> IntArray:
    """The rows about training: with a signal and a step, or with a loss if there are no steps."""
    if not choice.steps:
        return np.unique(np.concatenate([rows.columns[name].rows for name in choice.carriers]))
    here = np.zeros(rows.count, np.bool_)
    for signal, name in choice.signals.items():
        if signal != "epoch":
            here[rows.columns[name].rows] = True
    for name in choice.carriers:
        here[rows.columns[name].rows] = True
    stepped = np.zeros(rows.count, np.bool_)
    for name in choice.steps:
        column = rows.columns[name]
        stepped[column.rows[np.abs(column.values) < _STEP_MAX]] = True
    return np.flatnonzero(here & stepped)


def _labelled(rows: Rows, training: IntArray) -> list[tuple[str, IntArray]]:
    """The training rows of each named run."""
    if rows.run_of is None:
        return [("", training)]
    of = rows.run_of[training]
    if len(rows.runs) == 1:
        return [("", training)]
    order = np.argsort(of, kind="stable")
    edges = np.searchsorted(of[order], np.arange(len(rows.runs) + 1))
    return [
        (label, training[order[edges[number] : edges[number + 1]]])
        for number, label in enumerate(rows.runs)
        if edges[number + 1] > edges[number]
    ]


def _split(rows: Rows, choice: Choice, here: IntArray, name: str) -> list[_Run]:
    """The runs among rows without run names."""
    if not len(here):
        return []
    if not choice.steps:
        return [_Run(name, here, np.arange(1, len(here) + 1))]
    steps = _steps_at(rows, choice, here)
    note: tuple[str, ...] = ()
    per_epoch = _over_epochs(rows, choice, here, steps)
    if per_epoch is not None:
        steps = per_epoch
        note = ("The log restarts its steps in every epoch; here they count on.",)
    returns = np.flatnonzero(np.diff(steps) < 0) + 1
    if len(returns) > min(RETURNS_MAX, len(steps) / UNSORTED_ROWS_MAX):
        order = np.argsort(steps, kind="stable")
        places = counted(len(returns), "place")
        note = (*note, f"Steps are out of order in {places}; the rows were sorted by step.")
        return [_Run(name, here[order], steps[order], notes=note)]
    segments, late = _segments(steps, returns)
    if late:
        note = (*note, f"{counted(late, 'row')} written after rows of later steps: sorted.")
    runs: list[list[tuple[int, int]]] = []
    stride = stride_of(steps[slice(*segments[0])])
    for segment in segments:
        first = int(steps[segment[0]])
        # A run that logs every 10 steps begins with step 10, after one that began with 1.
        own_stride = stride_of(steps[slice(*segment)])
        if not runs or first <= max(int(steps[runs[-1][0][0]]) + stride, own_stride):
            runs.append([])
        runs[-1].append(segment)
    found = [_resumed(name, here, steps, parts, note) for parts in runs]
    if len(found) == 1:
        return found
    return [
        replace(run, name=f"{run.name} #{number}", notes=(*run.notes, "The steps start again: a separate run."))
        for number, run in enumerate(found, start=1)
    ]


def _segments(steps: IntArray, returns: IntArray) -> tuple[list[tuple[int, int]], int]:
    """Ranges of rows between places where the steps go back, and the number of rows that were only written late.

    A few late rows do not end a range; the range is sorted later.
    """
    bounds = [0, *returns.tolist(), len(steps)]
    segments: list[tuple[int, int]] = []
    late = 0
    for start, stop in pairwise(bounds):
        if segments and start > 0:
            before = int(steps[segments[-1][0] : start].max())
            behind = int((steps[start:stop] < before).sum())
            if behind <= STRAGGLERS_MAX and behind < stop - start and int(steps[start]) > int(steps[segments[-1][0]]):
                fresh = not np.isin(steps[start : start + behind], steps[segments[-1][0] : start]).any()
                if fresh:
                    late += behind
                    segments[-1] = (segments[-1][0], stop)
                    continue
        segments.append((start, stop))
    return segments, late


def _resumed(
    name: str, here: IntArray, steps: IntArray, segments: Sequence[tuple[int, int]], notes: tuple[str, ...]
) -> _Run:
    """One run from its segments. If a later segment repeats steps, its rows count."""
    kept: list[NDArray[np.int64]] = []
    resumed, told = [], []
    lowest_later = np.inf
    for number in range(len(segments) - 1, -1, -1):
        start, stop = segments[number]
        places = np.arange(start, stop)
        kept.append(places[steps[places] < lowest_later])
        first = int(steps[start:stop].min())
        lowest_later = min(lowest_later, first)
        if number:
            resumed.append(first)
            last = int(steps[segments[number - 1][0] : segments[number - 1][1]].max())
            told.append(f"Resumed at step {first} after step {last}: of repeated steps the later ones count.")
    places = np.concatenate(kept[::-1])
    order = np.argsort(steps[places], kind="stable")
    places = places[order]
    ordered = steps[places]
    jumps = _jumps(ordered[np.append(True, np.diff(ordered) != 0)])
    told = told[::-1] + [
        f"Steps {after + 1} to {before - 1} are missing from the log; treated as an interruption."
        for after, before in jumps[:STRAGGLERS_MAX]
    ]
    resumed += [before for _, before in jumps]
    return _Run(name, here[places], steps[places], tuple(sorted(set(resumed))), (*notes, *told))


def _jumps(steps: IntArray) -> list[tuple[int, int]]:
    """Gaps that the cadence on neither side explains, as last step before and first step after."""
    gaps = np.diff(steps)
    if len(gaps) < 3:
        return []
    wide = np.flatnonzero(gaps > JUMP_STRIDES * np.median(gaps))[:RETURNS_MAX]
    found = []
    for place in wide.tolist():
        around = np.concatenate([gaps[max(0, place - 3) : place], gaps[place + 1 : place + 4]])
        if 0 < place < len(gaps) - 1 and gaps[place] > JUMP_STRIDES * around.max():
            found.append((int(steps[place]), int(steps[place + 1])))
    return found


def _steps_at(rows: Rows, choice: Choice, here: IntArray) -> IntArray:
    steps = np.zeros(len(here), np.int64)
    for name in reversed(choice.steps):
        values, there = rows.columns[name].at(here)
        steps[there] = values[there].astype(np.int64)
    return steps


def _over_epochs(rows: Rows, choice: Choice, here: IntArray, steps: IntArray) -> IntArray | None:
    """Steps counted through all epochs if the log restarts them in each, else None."""
    returns = np.flatnonzero(np.diff(steps) < 0)
    if "epoch" not in choice.signals or not len(returns):
        return None
    values, there = rows.columns[choice.signals["epoch"]].at(here)
    if not there.all() or not (np.abs(values) < EPOCHS_MAX).all():
        return None
    epochs = np.floor(values).astype(np.int64)
    if (np.diff(epochs)[returns] > 0).mean() < _PER_EPOCH_SHARE or (np.diff(epochs) < 0).any():
        return None
    length = int(steps.max()) + (stride_of(np.unique(steps)) if int(steps.min()) == 0 else 0)
    if length * EPOCHS_MAX > _STEP_MAX:
        return None
    through: IntArray = steps + (epochs - epochs[0]) * length
    return through


def _ends(groups: Sequence[IntArray], rows: Rows) -> list[tuple[int, int]]:
    """For each run the range of rows whose evaluations belong to it: up to the start of the next run."""
    if rows.run_of is not None and len(rows.runs) > 1:
        return [(0, rows.count)] * len(groups)
    starts = [int(group.min()) for group in groups]
    return list(zip([0, *starts[1:]], [*starts[1:], rows.count], strict=True))


def _window(rows: Rows, choice: Choice, run: _Run, ends: tuple[int, int]) -> Window:
    last_of_step = np.append(np.diff(run.steps) != 0, True)
    steps = run.steps[last_of_step]
    count = len(steps)
    group = np.searchsorted(steps, run.steps)
    signals: dict[str, FloatArray] = {}
    present: dict[str, NDArray[np.bool_]] = {}
    for signal, name in choice.signals.items():
        values, there = rows.columns[name].at(run.rows)
        if not there.any():
            continue
        signals[signal], present[signal] = np.zeros(count), np.zeros(count, np.bool_)
        # Of several rows of a step the last with a value counts, but a NaN always wins.
        for counts in (there, there & ~np.isfinite(values)):
            signals[signal][group[counts]] = values[counts] * role_of(name).unit
        present[signal][group[there]] = True
    time = np.full(count, np.nan)
    if choice.time is not None:
        values, there = rows.columns[choice.time].at(run.rows)
        time[group[there]] = values[there] * role_of(choice.time).unit
    skipped = np.zeros(count, np.bool_)
    if choice.skipped is not None:
        values, there = rows.columns[choice.skipped].at(run.rows)
        skipped[group[there]] = values[there] > 0
    return Window(
        steps=steps.astype(np.int64),
        time=time,
        signals=signals,
        present=present,
        skipped=skipped,
        refused=np.zeros(count, np.bool_),
        metrics=_metrics(rows, choice, run, ends),
        resumed=np.array(run.resumed, np.int64),
        facts=_facts(rows, choice, run),
    )


def _metrics(rows: Rows, choice: Choice, run: _Run, ends: tuple[int, int]) -> dict[str, Series]:
    """All other metrics by step, evaluations first. A row without a step has that of the training row before it."""
    taken = choice.taken()
    names = [name for name in rows.columns if name not in taken and name != PROGRESS_BAR]
    names.sort(key=lambda name: role_of(name).what != "evaluation")
    found = {}
    for name in names[:METRICS_MAX]:
        column = rows.columns[name]
        inside = slice(*np.searchsorted(column.rows, ends))
        at, values = column.rows[inside], column.values[inside]
        if rows.run_of is not None and len(rows.runs) > 1:
            own = rows.run_of[at] == rows.run_of[run.rows[0]]
            at, values = at[own], values[own]
        if not len(at):
            continue
        series = _series(at, values, _metric_steps(rows, choice, run, at))
        found[name] = series
    return found


def _metric_steps(rows: Rows, choice: Choice, run: _Run, at: IntArray) -> IntArray:
    order = np.argsort(run.rows, kind="stable")
    places = np.searchsorted(run.rows[order], at, side="right") - 1
    steps = run.steps[order][np.maximum(places, 0)]
    exact = np.isin(at, run.rows)
    if not choice.steps or choice.steps[0] == PROGRESS_BAR:
        return steps
    for name in choice.steps:
        values, there = rows.columns[name].at(at)
        # If steps were counted through the epochs, only training rows carry the sum.
        own = there & ~exact if not _counted_through(rows, choice, run) else np.zeros(len(at), np.bool_)
        own &= np.abs(values) < _STEP_MAX
        steps[own] = values[own].astype(np.int64)
    return steps


def _counted_through(rows: Rows, choice: Choice, run: _Run) -> bool:
    return not np.array_equal(_steps_at(rows, choice, run.rows[-1:]), run.steps[-1:])


def _series(at: IntArray, values: FloatArray, steps: IntArray) -> Series:
    """Sort by step. Of several values of a step a non-finite one counts, else the last written."""
    order = np.lexsort((~np.isfinite(values), steps))
    steps, values = steps[order], values[order]
    last = np.append(np.diff(steps) != 0, True)
    return Series(steps[last].astype(np.int64), values[last])


def _facts(rows: Rows, choice: Choice, run: _Run) -> dict[str, float]:
    facts = {"loss_may_rise": 1.0} if loss_may_rise([*rows.columns]) else {}
    if choice.planned is None or _are_epochs(choice) or _counted_through(rows, choice, run):
        return facts
    planned = rows.columns[choice.planned].values
    last = float(planned[-1]) if len(planned) else 0.0
    return facts | ({"planned_steps": last} if np.isfinite(last) and last >= float(run.steps[-1]) else {})
