"""The sections precision and machine: facts, sentences and curves. Sentences say what was not recorded.

A signal that never changed becomes a fact instead of a curve. The names of facts, signals and columns are those on disk
(``docs/signals.md``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from steadytrain.core.model import Series, Window
from steadytrain.report.report_values import Topic
from steadytrain.report.table_readings import Readings
from steadytrain.report.thinned_curves import Curve, curve
from steadytrain.report.wording import Fact, clean, count, facts_of, number, sentences
from steadytrain.storage.run_folder import Run

POINTS_MAX = 600
DEVICES_MAX = 8
HEADROOM_NOTABLE = 0.1
"""Outputs are named if they come this near to the largest number of their dtype."""

_PRECISION = (
    ("loss_scale", "loss scale", "log"),
    ("scaler_skips", "steps skipped by the gradient scaler", "linear"),
    ("overflow_share", "share of gradient elements that overflowed", "linear"),
    ("underflow_share", "share of gradient elements that underflowed", "linear"),
    ("clip_coefficient", "clip coefficient", "log"),
    ("clip_count", "steps that were clipped", "linear"),
)
_UNSEEN = (
    ("loss_scale", "No gradient scaler was seen, so there is no loss scale and no skipped step."),
    ("clip_coefficient", "No clipping of gradients was seen."),
    ("overflow_share", "Overflow of gradients was not recorded."),
    ("underflow_share", "Underflow of gradients was not recorded."),
)
_FORMATS = (
    ("parameters", "parameters"),
    ("gradients", "gradients"),
    ("optimizer_state", "optimizer state"),
    ("autocast", "autocast"),
    ("logits", "logits"),
    ("float32_matmul_precision", "float32 matrix products"),
)
_HOST = (
    ("process_memory_bytes", "memory of the process, GB", 1e-9),
    ("available_memory_bytes", "memory available on the host, GB", 1e-9),
    ("cpu_busy_share", "busy share of the processors", 1.0),
)
_ACCELERATOR = (
    ("allocated_bytes", "memory allocated by torch, GB", 1e-9),
    ("reserved_bytes", "memory reserved by torch, GB", 1e-9),
    ("memory_used_bytes", "memory in use on the device, GB", 1e-9),
    ("busy_share", "share of time in which a kernel ran", 1.0),
    ("temperature_c", "temperature, degrees Celsius", 1.0),
    ("power_w", "power, watts", 1.0),
)
_COUNTERS = (
    ("allocation_retries", "retried allocations"),
    ("out_of_memory_errors", "allocations that failed for lack of memory"),
    ("ecc_uncorrected", "memory errors not correctable"),
    ("xid_errors", "errors reported by the driver (XID)"),
)
_SLOWED = (
    ("slowed_by_heat", "heat"),
    ("slowed_by_power", "a power limit"),
    ("slowed_by_hardware", "the hardware"),
)


def precision(run: Run, window: Window, readings: Readings) -> Topic:
    """Number formats, the gradient scaler, overflow and underflow, clipping."""
    facts, curves = _split((name, title, window.series(name), scale) for name, title, scale in _PRECISION)
    # Runs of older versions lack these signals, so nothing was recorded.
    told = [sentence for name, sentence in _UNSEEN if name in window.signals and not len(window.series(name))]
    if not any(name in window.signals for name, _ in _UNSEEN):
        told.append("The gradient scaler, clipping, overflow and underflow were not recorded.")
    clipped_early = run.facts.get("clipped_before_unscaling")
    if isinstance(clipped_early, int) and clipped_early:
        told.insert(
            0,
            f"Gradients were clipped in {count(clipped_early)} step{'s' if clipped_early > 1 else ''} while they still "
            "carried the loss scale: call scaler.unscale_(optimizer) before clipping.",
        )
    return Topic(
        "Precision", (*_formats(run.facts.get("precision")), *facts, *_headroom(readings)), tuple(told), curves
    )


def machine(run: Run, window: Window, readings: Readings) -> Topic:
    """Memory, temperature and power of the host and of each accelerator, and the time spent waiting for data."""
    waited = data_wait(window)
    facts, curves = _split([("data_wait", "share of the step spent waiting for data", waited, "linear")])
    told = [] if len(waited) else ["Waiting for data was not recorded."]
    devices = [row for row in readings.rows("machine") if row != "host"]
    for row in ["host", *devices[:DEVICES_MAX]]:
        wanted = _HOST if row == "host" else _ACCELERATOR
        device_facts, drawn = _split(_series(readings, row, column, title, factor) for column, title, factor in wanted)
        facts, curves = (*facts, *device_facts, *_counted(readings, row)), (*curves, *drawn)
        missing = [title.partition(",")[0] for column, title, _ in wanted if not _has(readings, row, column)]
        if "machine" in readings.tables and missing:
            told.append(f"{clean(row)} did not report: {', '.join(missing)}.")
    if "machine" not in readings.tables:
        told.append("The machine was not recorded.")
    elif not devices:
        told.append("No accelerator was used, so its memory, temperature and power were not recorded.")
    if len(devices) > DEVICES_MAX:
        told.append(f"{DEVICES_MAX} of {len(devices)} accelerators are shown.")
    return Topic(
        "Machine",
        (*_described(run.facts.get("machine")), *facts),
        (*told, *sentences(run.facts.get("machine_notes"))),
        curves,
    )


def data_wait(window: Window) -> Series:
    """Share of each step that the training thread waited for data, at the steps where both times are known."""
    if "data_wait_s" not in window.signals or "step_s" not in window.signals:
        return window.series("data_wait_s")
    waited, took = window.signals["data_wait_s"], window.signals["step_s"]
    here = window.present["data_wait_s"] & window.present["step_s"] & (took > 0)
    return Series(window.steps[here], np.clip(waited[here] / took[here], 0, 1))


def data_wait_share(window: Window) -> float | None:
    """The share over all steps together."""
    waited = window.series("data_wait_s")
    took = float(window.series("step_s").values.sum()) if len(waited) else 0.0
    return min(1.0, float(waited.values.sum()) / took) if took > 0 else None


def _split(
    signals: Iterable[tuple[str, str, Series, str]],
) -> tuple[tuple[Fact, ...], tuple[Curve, ...]]:
    """Split signals: those that never changed become facts, the others curves."""
    facts, curves = [], []
    for name, title, series, scale in signals:
        drawn = curve(name, title, series, scale=scale, points_max=POINTS_MAX)
        if drawn is None:
            continue
        if drawn.smallest == drawn.largest and not drawn.not_finite and drawn.smallest is not None:
            steps = "throughout" if drawn.count > 1 else f"at step {count(drawn.steps[0])}"
            facts.append(Fact(title, f"{number(drawn.smallest)} {steps}"))
        else:
            curves.append(drawn)
    return tuple(facts), tuple(curves)


def _formats(fact: Any) -> tuple[Fact, ...]:
    if not isinstance(fact, Mapping):
        return ()
    return facts_of(*((label, _format(fact.get(name))) for name, label in _FORMATS))


def _format(value: Any) -> str:
    """Format ``{"torch.float32": 12}`` as ``float32 (12)``. A single format has no number."""
    if not isinstance(value, Mapping):
        return str(value).removeprefix("torch.") if value else ""
    formats = [
        (f"{str(held).removeprefix('torch.')} on {name}" if isinstance(held, str) else str(name), held)
        for name, held in value.items()
    ]
    names = [
        f"{name.removeprefix('torch.')} ({held:,})" if isinstance(held, int) and len(formats) > 1 else name
        for name, held in formats
    ]
    return ", ".join(name.removeprefix("torch.") for name in names)


def _headroom(readings: Readings) -> tuple[Fact, ...]:
    cells = readings.cells("modules", "headroom")
    if cells is None:
        return ()
    values = np.nan_to_num(cells.values, nan=-1.0)
    reading, row = np.unravel_index(int(values.argmax()), values.shape)
    largest = float(values[reading, row])
    if largest < HEADROOM_NOTABLE:
        return (Fact("largest output", f"below {HEADROOM_NOTABLE:g} of the largest number of its format"),)
    where = f"{clean(cells.rows[int(row)])} at step {count(int(cells.steps[int(reading)]))}"
    return (Fact("largest output", f"{number(largest)} of the largest number of its format, in {where}"),)


def _series(readings: Readings, row: str, column: str, title: str, factor: float) -> tuple[str, str, Series, str]:
    empty = Series(np.zeros(0, np.int64), np.zeros(0, np.float64))
    found = readings.tables["machine"].series(row, column) if _has(readings, row, column) else empty
    return f"{row}_{column}", f"{clean(row)}: {title}", Series(found.steps, found.values * factor), "linear"


def _has(readings: Readings, row: str, column: str) -> bool:
    table = readings.tables.get("machine")
    if table is None or row not in table.rows or column not in table.columns:
        return False
    return len(table.series(row, column)) > 0


def _counted(readings: Readings, row: str) -> tuple[Fact, ...]:
    """Counters that should be zero but are not, and the reasons why the device slowed down."""
    found = []
    for column, label in _COUNTERS:
        if _has(readings, row, column):
            most = float(readings.tables["machine"].series(row, column).values.max())
            if most:
                found.append(Fact(f"{clean(row)}: {label}", count(int(most))))
    for column, cause in _SLOWED:
        if _has(readings, row, column):
            slowed = readings.tables["machine"].series(row, column).values
            if slowed.any():
                share = f"{count(int((slowed > 0).sum()))} of {count(len(slowed))} readings"
                found.append(Fact(f"{clean(row)}: slowed down by {cause}", share))
    return tuple(found)


def _described(fact: Any) -> tuple[Fact, ...]:
    """The fact ``machine``, one line per device."""
    if not isinstance(fact, Mapping):
        return ()
    return facts_of(*((str(row), _line(value) if isinstance(value, Mapping) else value) for row, value in fact.items()))


def _line(value: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{str(name).removesuffix('_bytes').replace('_', ' ')} {held / 1e9:.1f} GB"
        if str(name).endswith("_bytes") and isinstance(held, (int, float))
        else f"{str(name).replace('_', ' ')} {held}"
        for name, held in value.items()
        if held not in (None, "", [], {})
    )
