"""Healthy runs in which nothing is wrong: simulated noise, and resampled noise of real ones (surrogates).

All signals of a run vary with the same kind of noise. The tables of tensors and modules are there as well, so that
every detector has something to look at; their noise is lognormal whatever the kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from steadytrain.core.model import Series, Table, Window
from steadytrain.testing import steps

Values = NDArray[np.float64]
Generator = np.random.Generator

LEVEL, SIGMA = 2.0, 0.04
"""A loss of two nats that varies by 0.04: a byte-level or a good word-level language model."""

LOG_NORM_SIGMA = 0.15
READ_EVERY, EVALUATE_EVERY = 50, 500
MODULES = tuple(f"blocks.{block}.{part}" for block in range(4) for part in ("attention", "mlp"))
TENSORS = ("embedding.weight", *(f"{module}.weight" for module in MODULES))

DOCUMENT_SHARE, DOCUMENT_STAYS = 0.365, 0.932
"""Share of the variance that lies between documents, and chance that the next batch is of the same one: together an
autocorrelation of 0.34 at lag 1 and 0.18 at lag 10, as measured on a model that read its text in order."""

BLOCK_STEPS = (50, 200)
SURROGATE_FIRST_STEP = 10_001


# Noise with a mean of zero and a size of about one.


def gaussian(draw: Generator, count: int) -> Values:
    return draw.standard_normal(count)


def correlated(share: float) -> Callable[[Generator, int], Values]:
    def noise(draw: Generator, count: int) -> Values:
        innovations = draw.standard_normal(count) * (1.0 - share**2) ** 0.5
        values = np.empty(count)
        value = draw.standard_normal()
        for i, innovation in enumerate(innovations.tolist()):
            value = share * value + innovation
            values[i] = value
        return values

    return noise


def documents(draw: Generator, count: int) -> Values:
    """Batches of one document after the other: each document has a level of its own."""
    document = np.cumsum(draw.random(count) >= DOCUMENT_STAYS)
    level = draw.standard_normal(int(document[-1]) + 1)[document] if count else np.zeros(0)
    values: Values = DOCUMENT_SHARE**0.5 * level + (1.0 - DOCUMENT_SHARE) ** 0.5 * draw.standard_normal(count)
    return values


def lognormal(draw: Generator, count: int) -> Values:
    values: Values = (draw.lognormal(0.0, 0.5, count) - 1.0) / 0.5
    return values


def student(freedom: float) -> Callable[[Generator, int], Values]:
    return lambda draw, count: draw.standard_t(freedom, count)


def falling(draw: Generator, count: int) -> Values:
    """A loss that falls as a power of the step: by 100 sigma in the first thousand steps, by 2 in the last ten."""
    trend = 250.0 * (1.0 + np.arange(count) / 100.0) ** -0.5
    values: Values = trend + draw.standard_normal(count)
    return values


def dropping(draw: Generator, count: int) -> Values:
    """Steep exponential falls that end, one every 2,000 steps: stages of a schedule, each lower than the last."""
    stage = np.arange(count) // 2000
    within = np.arange(count) % 2000
    trend = -4.0 * stage + 40.0 * np.exp(-within / 150.0) * (stage == 0) - 4.0 * (1.0 - np.exp(-within / 60.0))
    values: Values = 200.0 + trend + draw.standard_normal(count)
    return values


NOISES: Mapping[str, Callable[[Generator, int], Values]] = {
    "Gaussian": gaussian,
    "AR(0.3)": correlated(0.3),
    "AR(0.9)": correlated(0.9),
    "lognormal 0.5": lognormal,
    "Student t5": student(5.0),
    "Student t3": student(3.0),
    "documents": documents,
    "falling": falling,
    "falling in stages": dropping,
}

WITH_TREND = ("falling", "falling in stages")


def generator(kind: str, seed: int) -> Generator:
    return np.random.default_rng([seed, *kind.encode()])


def simulated(kind: str, count: int, *, seed: int) -> Window:
    """A healthy run of ``count`` steps."""
    draw, noise = generator(kind, seed), NOISES[kind]
    still = gaussian if kind in WITH_TREND else noise
    loss = LEVEL + SIGMA * noise(draw, count)
    return run(draw, loss=loss, log_norm=LOG_NORM_SIGMA * still(draw, count), log_time=0.1 * still(draw, count))


# Surrogates.


@dataclass(frozen=True)
class Trace:
    """What a real run logged: losses, and logarithms of gradient norms (none: an empty array)."""

    name: str
    loss: Values
    log_norm: Values


def surrogate(trace: Trace, count: int, *, seed: int) -> Window:
    """A run as long as wanted that varies as a real one did.

    The trend of the real run, drawn out to the new length, and its residuals in blocks of 50 to 200 steps, taken from
    anywhere in it: the same rows of the loss and of the norm. The first tenth of the run is left out: it falls too
    steeply for its residuals to be noise. So step numbers begin where a run is no longer young.
    """
    draw = generator(trace.name, seed)
    begin = len(trace.loss) // 10
    rows = begin + blocks(draw, len(trace.loss) - begin, count)
    at = np.linspace(begin, len(trace.loss) - 1.0, count)
    signals = []
    for values in (trace.loss, trace.log_norm):
        if not len(values):
            signals.append(LOG_NORM_SIGMA * gaussian(draw, count))
            continue
        trend = trend_of(values)
        signals.append(np.interp(at, np.arange(len(values)), trend) + (values - trend)[rows])
    log_time = 0.1 * gaussian(draw, count)
    return run(draw, loss=signals[0], log_norm=signals[1], log_time=log_time, first_step=SURROGATE_FIRST_STEP)


def blocks(draw: Generator, length: int, count: int) -> NDArray[np.int64]:
    """``count`` rows out of ``length``: stretches of 50 to 200 from random places, past the end on from the start."""
    rows: list[NDArray[np.int64]] = []
    held = 0
    while held < count:
        size = int(draw.integers(BLOCK_STEPS[0], BLOCK_STEPS[1] + 1))
        rows.append((int(draw.integers(length)) + np.arange(size)) % length)
        held += size
    return np.concatenate(rows)[:count]


def trend_of(values: Values) -> Values:
    """Means of stretches, short where a run is young and 200 steps where it is old, joined by lines.

    What is slower than a block is trend: blocks would tear it up into steps that the real run never made.
    """
    edges = [0]
    while edges[-1] < len(values):
        edges.append(min(edges[-1] + min(max(edges[-1] // 4, 8), BLOCK_STEPS[1]), len(values)))
    middle = [0.5 * (start + stop - 1) for start, stop in pairwise(edges)]
    means = [float(values[start:stop].mean()) for start, stop in pairwise(edges)]
    trend: Values = np.interp(np.arange(len(values)), middle, means)
    return trend


# The rest of a run.


def run(draw: Generator, *, loss: Values, log_norm: Values, log_time: Values, first_step: int = 1) -> Window:
    """A window with these signals and all that a healthy run has beside them."""
    count = len(loss)
    norm = np.exp(log_norm)
    shares = draw.dirichlet(np.full(len(TENSORS), 20.0)) ** 0.5
    each = norm[:, None] * shares * np.exp(0.1 * draw.standard_normal((count, len(TENSORS))))
    read = np.arange(READ_EVERY - 1, count, READ_EVERY)
    at = first_step + read
    return steps(
        first_step=first_step,
        loss=loss,
        gradient_norm=norm,
        step_s=0.1 * np.exp(log_time),
        learning_rate=np.linspace(1e-3, 1e-4, count),
        tokens=np.full(count, 8192.0),
        samples=np.full(count, 32.0),
        loss_scale=np.full(count, 65536.0),
        scaler_skips=np.zeros(count),
        gradient_norms={name: each[:, position].tolist() for position, name in enumerate(TENSORS)},
        tables={"tensors": _tensors(draw, at, each[read]), "modules": _modules(draw, at)},
        metrics={name: _evaluations(draw, loss, first_step) for name in ("eval_loss", "eval_news_loss")},
        facts={"planned_steps": float(count)},
    )


def _evaluations(draw: Generator, loss: Values, first_step: int) -> Series:
    """Evaluations that agree with the training loss."""
    at = np.arange(EVALUATE_EVERY, len(loss) + 1, EVALUATE_EVERY)
    recent = np.array([np.median(loss[step - EVALUATE_EVERY // 4 : step]) for step in at.tolist()])
    return Series(first_step - 1 + at.astype(np.int64), recent * draw.lognormal(0.0, 0.01, len(at)))


def _tensors(draw: Generator, at: NDArray[np.int64], norms: Values) -> Table:
    columns: dict[str, Values | float] = {
        "gradient_norm": norms,
        "weight_norm": 10.0,
        "update_norm": _wobble(draw, (len(at), len(TENSORS)), 1e-2),
        "update_ratio": _wobble(draw, (len(at), len(TENSORS)), 1e-3),
        "unchanged_share": 0.01,
        "gradient_zero_share": 0.05,
        "gradient_to_second_moment": _wobble(draw, (len(at), len(TENSORS)), 1.0),
        "first_moment_nonfinite": 0.0,
        "second_moment_nonfinite": 0.0,
        "weight_nonfinite": 0.0,
    }
    return _table("tensors", at, TENSORS, columns)


def _modules(draw: Generator, at: NDArray[np.int64]) -> Table:
    shape = (len(at), len(MODULES))
    columns: dict[str, Values | float] = {
        "std": _wobble(draw, shape, 1.0),
        "zero_share": _wobble(draw, shape, 0.1),
        "nonfinite": 0.0,
        "headroom": _wobble(draw, shape, 20.0),
        "attention_logit_max": _wobble(draw, shape, 8.0),
        "attention_entropy": _wobble(draw, shape, 3.0),
        "log_z_mean": _wobble(draw, shape, 5.0),
    }
    return _table("modules", at, MODULES, columns)


def _wobble(draw: Generator, shape: tuple[int, int], level: float) -> Values:
    values: Values = level * draw.lognormal(0.0, 0.05, shape)
    return values


def _table(name: str, at: NDArray[np.int64], rows: tuple[str, ...], columns: Mapping[str, Values | float]) -> Table:
    values = np.empty((len(at), len(rows), len(columns)), np.float32)
    for position, column in enumerate(columns.values()):
        values[:, :, position] = column
    return Table(name, at.astype(np.int64), at.astype(np.float64), rows, tuple(columns), values)
