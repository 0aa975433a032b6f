"""Run folders with tables, written through the store: what the tests of maps, layers and topics read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import builders
from steadytrain.core.model import Reading
from steadytrain.storage.segments import StepRecord
from steadytrain.storage.tables import TableWriter

BINS = ("zero", "below", *(f"2^{exponent}" for exponent in range(-40, 24)), "above", "nonfinite")
TENSOR_COLUMNS = ("gradient_nonfinite", "weight_nonfinite", "weight_norm", "update_ratio", "gradient_zero_share")
MODULE_COLUMNS = ("std", "abs_max", "zero_share", "nonfinite", "headroom")


def layers(count: int) -> tuple[str, ...]:
    """Names of ``count`` parameters as an optimizer lists them: all weights, then all biases."""
    names = [f"model.blocks.{index}.mlp.up" for index in range((count + 1) // 2)]
    return (*(f"{name}.weight" for name in names), *(f"{name}.bias" for name in names))[:count]


def write_table(
    run: Path,
    name: str,
    steps: Sequence[int],
    rows: Sequence[str],
    columns: Sequence[str],
    values: NDArray[Any],
    *,
    stream: str = "main",
) -> None:
    """Readings of shape ``(steps, rows, columns)``."""
    writer = TableWriter(run / "tables" / stream, name)
    for step, reading in zip(steps, np.asarray(values, np.float32), strict=True):
        writer.append(step, 1_790_000_000.0 + step, Reading(name, tuple(rows), tuple(columns), reading))
    writer.close()


def gradients(run: Path, rows: Sequence[str], values: NDArray[Any], *, first: int = 1) -> None:
    """Norms of shape ``(steps, rows)`` of neighbouring steps; -1 is a gradient that was absent."""
    write_table(run, "gradients", range(first, first + len(values)), rows, ("norm",), values[:, :, None])


def norms(steps: int, rows: int) -> NDArray[np.float32]:
    """Plausible norms over four decades."""
    random = np.random.default_rng(5)
    return np.asarray(10.0 ** random.uniform(-4, 0, (steps, rows)), np.float32)


def tensors(run: Path, steps: Sequence[int], rows: Sequence[str], **columns: NDArray[Any]) -> None:
    """The table ``tensors``; a column that is not given is zero."""
    names = tuple(dict.fromkeys((*TENSOR_COLUMNS, *columns)))
    shape = (len(steps), len(rows))
    filled = [columns.get(name, np.zeros(shape)) for name in names]
    write_table(run, "tensors", steps, rows, names, np.stack(filled, axis=2))


def modules(run: Path, steps: Sequence[int], rows: Sequence[str], **columns: NDArray[Any]) -> None:
    """The table ``modules``; a column that is not given is zero."""
    names = tuple(dict.fromkeys((*MODULE_COLUMNS, *columns)))
    shape = (len(steps), len(rows))
    filled = [columns.get(name, np.zeros(shape)) for name in names]
    write_table(run, "modules", steps, rows, names, np.stack(filled, axis=2))


def shares(steps: int, rows: int) -> NDArray[np.float32]:
    """Histograms that move down by a power of two every step."""
    values = np.zeros((steps, rows, len(BINS)), np.float32)
    for step in range(steps):
        peak = BINS.index(f"2^{-4 - step % 20}")
        values[step, :, peak] = 0.75
        values[step, :, peak - 1] = 0.25
    return values


def histograms(run: Path, steps: Sequence[int], rows: Sequence[str], values: NDArray[Any] | None = None) -> None:
    write_table(run, "histograms", steps, rows, BINS, shares(len(steps), len(rows)) if values is None else values)


def machine(run: Path, steps: Sequence[int], rows: Mapping[str, Mapping[str, float]]) -> None:
    """The table ``machine``: the same in every reading but for the first column, which grows."""
    columns = tuple(dict.fromkeys(column for values in rows.values() for column in values))
    one = np.array([[values.get(column, np.nan) for column in columns] for values in rows.values()])
    grown = np.array([one * (1 + 0.1 * index) for index in range(len(steps))])
    grown[:, :, 1:] = one[:, 1:]
    write_table(run, "machine", steps, tuple(rows), columns, grown)


def with_signals(steps: int, **signals: Sequence[float] | NDArray[Any]) -> list[StepRecord]:
    """Steps with further scalars."""
    return [
        StepRecord(
            record.step,
            record.time,
            {**record.scalars, **{name: float(values[index]) for name, values in signals.items()}},
            record.gradient_norms,
        )
        for index, record in enumerate(builders.records(steps))
    ]


def large_run(path: Path, *, tensors_count: int = 200, steps: int = 10_000) -> Path:
    """As much as a run of that size keeps: every table at its cadence, noise everywhere, so that nothing compresses."""
    random = np.random.default_rng(3)
    rows = layers(tensors_count)
    outputs = tuple(dict.fromkeys(row.rpartition(".")[0] for row in rows))
    noise: Mapping[str, NDArray[Any]] = {
        "underflow_share": random.uniform(0, 0.1, steps),
        "overflow_share": random.uniform(0, 1e-3, steps),
        "loss_scale": 2.0 ** random.integers(10, 17, steps),
        "clip_coefficient": random.uniform(0.1, 1, steps),
        "clip_count": np.arange(steps, dtype=float),
        "scaler_skips": np.arange(steps, dtype=float) // 100,
        "data_wait_s": random.uniform(0, 0.05, steps),
    }
    run = builders.quiet_run(path, steps=with_signals(steps, **noise))
    gradients(run, rows, norms(steps, len(rows)))
    every = range(1, steps + 1, 50)
    shape = (len(every), len(rows))
    ratios = 10.0 ** random.uniform(-6, -1, shape)
    columns = {name: random.uniform(0.1, 2, shape) for name in ("weight_norm", "gradient_to_second_moment")}
    tensors(run, every, rows, update_ratio=ratios, **columns)
    shape = (len(every), len(outputs))
    names = ("std", "abs_max", "zero_share", "kurtosis", "attention_entropy", "attention_logit_max")
    modules(run, every, outputs, **{name: random.uniform(0, 1, shape) for name in names})
    seldom = range(1, steps + 1, 100)
    named = [
        *(f"{kind}:{row}" for kind in ("gradient", "weight") for row in rows),
        *(f"activation:{o}" for o in outputs),
    ]
    spread = random.exponential(1.0, (len(seldom), len(named), len(BINS)))
    spread[:, :, : BINS.index("2^-28")] = 0
    spread[:, :, BINS.index("2^2") :] = 0
    histograms(run, seldom, named, spread / spread.sum(axis=2, keepdims=True))
    cuda = {"allocated_bytes": 3e10, "memory_used_bytes": 4e10, "temperature_c": 61.0, "power_w": 400.0}
    machine(run, every, {"host": {"process_memory_bytes": 2e9}, "cuda:0": cuda})
    return run
