"""Windows of steps in one line, for the tests of detectors.

from steadytrain.testing import healthy_loss, steps

window = steps(loss=[2.0, 2.1, float("nan")], gradient_norm=[1.0, None, 3.0], skipped=[3])
assert NonfiniteLoss().check(window) is None
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from steadytrain.model import SIGNALS, FloatArray, Window


def steps(
    *,
    first_step: int = 1,
    stride: int = 1,
    skipped: Collection[int] = (),
    refused: Collection[int] = (),
    gradient_norms: Mapping[str, Sequence[float]] | None = None,
    stream: str = "main",
    **signals: Sequence[float | None] | FloatArray,
) -> Window:
    """A window with the given signals (``loss=``, ``gradient_norm=``, ... : the names in ``model.SIGNALS``).

    All signals are equally long; None is a step that did not measure the signal, NaN one that measured NaN. Steps are
    numbered from ``first_step``, ``stride`` apart, one second each; ``skipped`` and ``refused`` are step numbers.
    ``gradient_norms`` has one sequence for each tensor.

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
        stream=stream,
    )


def healthy_loss(
    count: int, *, seed: int = 0, start: float = 4.0, end: float = 2.0, decay_steps: float = 300.0, noise: float = 0.04
) -> FloatArray:
    """A loss that decays from ``start`` to ``end`` in nats, with independent Gaussian noise: nothing is wrong."""
    trend = end + (start - end) * np.exp(-np.arange(count) / decay_steps)
    loss: FloatArray = trend + noise * np.random.default_rng(seed).standard_normal(count)
    return loss


def _values(values: Sequence[float | None] | FloatArray) -> FloatArray:
    return np.array([0.0 if value is None else value for value in values], np.float64)


def _present(values: Sequence[float | None] | FloatArray) -> NDArray[np.bool_]:
    return np.array([value is not None for value in values], np.bool_)
