"""Windows of steps in one line, for the tests of detectors.

from steadytrain.testing import healthy_loss, newest, steps

window = steps(loss=[2.0, 2.1, float("nan")], gradient_norm=[1.0, None, 3.0], skipped=[3])
assert newest(NonfiniteLoss(), window) is None
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from steadytrain.core.model import SIGNALS, FloatArray, Series, Symptom, Table, Window
from steadytrain.detectors import Detector


def steps(
    *,
    first_step: int = 1,
    stride: int = 1,
    skipped: Collection[int] = (),
    refused: Collection[int] = (),
    gradient_norms: Mapping[str, Sequence[float]] | None = None,
    tables: Mapping[str, Table] | None = None,
    metrics: Mapping[str, Series] | None = None,
    facts: Mapping[str, float] | None = None,
    **signals: Sequence[float | None] | FloatArray,
) -> Window:
    """A window with the given signals (``loss=``, ``gradient_norm=``, ... : the names in ``model.SIGNALS``).

    All signals have the same length. None is a step that did not measure the signal, NaN one that measured NaN. Steps
    are numbered from ``first_step``, ``stride`` apart, one second each; ``skipped`` and ``refused`` are step numbers.
    ``gradient_norms`` has one sequence for each tensor. Set rarer fields (``resumed``, ``stream``) with
    ``dataclasses.replace``.

    Raises:
        ValueError: an unknown signal, signals of different length, or a skipped or refused step outside the window.
    """
    unknown = sorted(set(signals) - set(SIGNALS))
    if unknown:
        raise ValueError(f"no signal is called {', '.join(unknown)}; there are {', '.join(SIGNALS)}")
    tensors = gradient_norms or {}
    lengths = {name: len(values) for name, values in {**signals, **tensors}.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"all signals of a window are equally long, but here are {lengths}")
    count = next(iter(lengths.values()), 0)
    numbers = np.arange(first_step, first_step + count * stride, stride, dtype=np.int64)
    outside = sorted({*skipped, *refused} - set(numbers.tolist()))
    if outside:
        raise ValueError(f"steps {outside} are not in the window")
    norms = np.array(list(tensors.values()), np.float32).reshape(len(tensors), count).T
    return Window(
        steps=numbers,
        time=numbers.astype(np.float64),
        signals={name: _values(signals[name]) for name in signals},
        present={name: _present(signals[name]) for name in signals},
        skipped=np.isin(numbers, list(skipped)),
        refused=np.isin(numbers, list(refused)),
        tensor_names=tuple(tensors),
        gradient_norms=norms if tensors else np.zeros((0, 0), np.float32),
        tables=tables or {},
        metrics=metrics or {},
        facts=facts or {},
    )


def table(name: str, *, at: Sequence[int], **columns: Mapping[str, Sequence[float]]) -> Table:
    """Readings of a table at the steps ``at``: for each column a mapping of rows to values, NaN if not measured.

    ``table("modules", at=[50, 100], zero_share={"mlp.act": [0.4, 0.9]})``
    """
    rows = tuple(dict.fromkeys(row for column in columns.values() for row in column))
    values = np.full((len(at), len(rows), len(columns)), np.nan, np.float32)
    for position, column in enumerate(columns.values()):
        for row, cells in column.items():
            values[:, rows.index(row), position] = cells
    numbers = np.array(at, np.int64)
    return Table(name, numbers, numbers.astype(np.float64), rows, tuple(columns), values)


def newest(detector: Detector, window: Window) -> Symptom | None:
    """The last symptom that ``detector`` finds in ``window``, None if it finds none."""
    return (detector.check(window) or (None,))[-1]


def healthy_loss(
    count: int, *, seed: int = 0, start: float = 4.0, end: float = 2.0, decay_steps: float = 300.0, noise: float = 0.04
) -> FloatArray:
    """A healthy loss that decays from ``start`` to ``end`` in nats, with independent Gaussian noise."""
    trend = end + (start - end) * np.exp(-np.arange(count) / decay_steps)
    loss: FloatArray = trend + noise * np.random.default_rng(seed).standard_normal(count)
    return loss


def _values(values: Sequence[float | None] | FloatArray) -> FloatArray:
    return np.array([0.0 if value is None else value for value in values], np.float64)


def _present(values: Sequence[float | None] | FloatArray) -> NDArray[np.bool_]:
    return np.array([value is not None for value in values], np.bool_)
