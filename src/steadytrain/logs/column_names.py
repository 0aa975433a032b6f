"""Identify columns by their usual names: loss, step, gradient norm.

A name is split into words (``train/loss``, ``trainLoss`` and ``Train Loss`` give the same two). A column of an
evaluation is never the training loss. If two columns match equally well, the reader does not guess.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from steadytrain.core.errors import UsageError
from steadytrain.core.metric_names import direction, words
from steadytrain.logs.log_rows import Column
from steadytrain.logs.reader import Columns

COVERAGE_MIN = 0.5
"""A loss with less than this share of the rows of the fullest one is something else: a summary, an evaluation."""

NAMES_SHOWN_MAX = 12
METRIC_ROWS_MIN = 5
"""A log without a loss is read for its metrics if one of them has this many rows."""

TRAINING = frozenset({"train", "training", "trn", "tr"})
EVALUATION = frozenset(
    {"eval", "evaluation", "val", "valid", "validation", "test", "testing", "dev", "heldout", "holdout", "best"}
)
_FILLER = frozenset({"trainer", "metrics", "metric", "scalars", "scalar", "log", "logs", "current", "curr", "cur"})
_LOSS = frozenset({"loss", "losses"})
_ALSO_LOSS = frozenset({"nll", "xent", "ce", "bce", "crossentropy", "perplexityloss"})
_NO_LOSS = frozenset(
    {"scale", "scaler", "scaling", "weight", "weights", "coef", "coefficient", "ratio", "factor", "threshold", "target"}
    | {"min", "max", "std", "var", "variance", "count", "delta", "diff", "change", "slope", "spike", "time", "tokens"}
    | {"grad", "gradient", "norm", "ppl", "patience", "zero", "lr", "rate", "skipped", "nan"}
)
_OF_LOSS = (
    frozenset({"step", "steps", "batch", "iter", "iteration", "micro", "mb"}),
    frozenset({"lm", "mlm", "clm", "total", "overall", "all", "sum", "global"}),
    frozenset({"avg", "average", "averaged", "mean", "running", "smooth", "smoothed", "ema", "interval"}),
    frozenset({"epoch"}),
)
_LOSS_OTHER = len(_OF_LOSS)
LOSS_PART = _LOSS_OTHER
"""The tier of a loss with words of its own: one of several parts, or the only one."""

_LOSS_NAMELESS = _LOSS_OTHER + 1


def _each(*names: str) -> tuple[frozenset[str], ...]:
    return tuple(frozenset(name.split()) for name in names)


_STEP = (
    _each("global step", "global steps", "globalstep", "optimizer step", "update step", "num updates"),
    _each("step", "steps", "iteration", "iterations", "update", "updates", "num steps"),
    _each("iter", "iters", "it", "itr", "n iter", "num iter"),
    (),  # `_step` of Weights & Biases counts calls of log
    _each("batch", "batches", "batch idx", "minibatch", "episode", "episodes", "timesteps", "total timesteps"),
    _each("progress bar"),
)
_STEP_OF_CALLS = 3
PROGRESS_BAR = "progress bar"
_COUNTERS = {
    "planned": _each("total steps", "max steps", "total optimization steps", "total iterations"),
    "epoch": _each("epoch", "epochs", "ep"),
    "loss_scale": _each("loss scale", "loss scaler scale", "grad scale", "grad scaler", "scaler scale", "amp scale")
    + _each("loss scaler", "scaler", "scale"),
    "skipped": _each("number of skipped iterations", "skipped iterations", "skipped iter", "skipped"),
    "run": _each("run", "run id", "run name", "run uuid", "runid", "experiment", "experiment id", "experiment name")
    + _each("exp", "trial", "trial id", "seed", "rank", "global rank"),
}
_STEP_TIME = _each("step time", "iter time", "iteration time", "batch time", "time per step", "time per iteration")
_STEP_TIME += _each(
    "elapsed time per iteration", "per step", "dt", "step duration", "time per iter", "per iter", "per it"
)
_UNITS = {"ms": 1e-3, "milliseconds": 1e-3, "s": 1.0, "sec": 1.0, "secs": 1.0, "seconds": 1.0}
_CLOCK = _each("timestamp", "wall time", "walltime", "created at", "time")
_GRADIENT = frozenset({"grad", "grads", "gradient", "gradients"})
_OF_NORM = frozenset({"norm", "norms", "total", "global", "l", "2", "0", "all", "pre", "before", "overall", "step"})
_APPLIED = frozenset({"clipped", "post", "after"})
_OF_RATE = frozenset({"group", "groups", "pg", "param", "optim", "optimizer", "scheduler", "w", "base", "step"})
_OF_RATE |= {"adam", "adamw", "sgd", "muon", "lion", "adafactor"}
_PARAMETERS = frozenset({"param", "params", "parameter", "parameters", "weight", "weights"})


@dataclass(frozen=True)
class Role:
    """The meaning of a column name: a signal of ``model.SIGNALS``, or ``step``, ``time``, ``planned``, ``skipped``,
    ``run``, ``evaluation``, ``other``. A lower ``tier`` is a better name. For a time, the value times ``unit`` is in
    seconds."""

    what: str
    tier: int = 0
    unit: float = 1.0


@dataclass(frozen=True)
class Choice:
    """The column of each role. ``steps`` has several columns if no row has more than one of them. ``carriers`` have a
    row for each training step: the loss or the gradient norm, or the metrics if the log has neither."""

    signals: Mapping[str, str]
    steps: tuple[str, ...]
    time: str | None
    planned: str | None
    skipped: str | None
    carriers: tuple[str, ...]

    def taken(self) -> frozenset[str]:
        single = (self.time, self.planned, self.skipped)
        return frozenset([*self.signals.values(), *self.steps, *(name for name in single if name)])


@lru_cache(maxsize=4096)
def role_of(name: str) -> Role:
    """The role of the column called ``name``, from its name alone."""
    every = _words(name)
    if every & EVALUATION:
        return Role("evaluation")
    for judge in (_loss, _norms, _rate, _counters, _times):
        role = judge(name, every)
        if role is not None:
            return role
    return Role("other")


def _words(name: str) -> frozenset[str]:
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name)
    return frozenset(re.findall(r"[a-z]+|\d+", spaced.lower()))


def _loss(name: str, every: frozenset[str]) -> Role | None:
    rest = every - _FILLER - TRAINING
    if rest == {"value"}:  # TensorBoard's name for exported values
        return Role("loss", _LOSS_NAMELESS)
    also = every & _ALSO_LOSS or ({"cross", "entropy"} <= every and {"cross"})
    if not (every & _LOSS or also) or every & _NO_LOSS:
        return None
    rest -= _LOSS
    if not rest:
        return Role("loss")
    return Role("loss", next((tier for tier, words in enumerate(_OF_LOSS) if rest <= words), _LOSS_OTHER))


def _norms(name: str, every: frozenset[str]) -> Role | None:
    rest = every - _FILLER - TRAINING - {"model"}
    if "gnorm" in rest or "gradnorm" in rest:
        rest = (rest - {"gnorm", "gradnorm"}) | {"grad", "norm"}
    if rest == {"norm"}:
        return Role("gradient_norm", 2)
    if not rest & {"norm", "norms"}:
        return None
    if rest & _GRADIENT or rest >= {"g"}:
        of = rest - _GRADIENT - {"g"} - _OF_NORM - {"unclipped", "clip", "clipping"}
        if not of:
            return Role("gradient_norm")
        return Role("gradient_norm_applied") if of <= _APPLIED else None
    if rest & _PARAMETERS and not rest - _PARAMETERS - _OF_NORM:
        return Role("parameter_norm")
    return None


def _rate(name: str, every: frozenset[str]) -> Role | None:
    rest = every - _FILLER - TRAINING
    if "lr" in rest:
        rest -= {"lr"}
    elif {"learning", "rate"} <= rest:
        rest -= {"learning", "rate"}
    else:
        return None
    if all(word in _OF_RATE or word.isdigit() for word in rest):
        return Role("learning_rate", 1 if rest else 0)
    return None


def _counters(name: str, every: frozenset[str]) -> Role | None:
    if name == "_step":
        return Role("step", _STEP_OF_CALLS)
    rest = every - _FILLER - TRAINING
    for tier, sets in enumerate(_STEP):
        if rest in sets:
            return Role("step", tier)
    for what, alternatives in _COUNTERS.items():
        if rest in alternatives:
            return Role(what, alternatives.index(rest))
    return None


def _times(name: str, every: frozenset[str]) -> Role | None:
    rest = every - _FILLER - TRAINING
    unit = next((_UNITS[word] for word in rest if word in _UNITS), 1.0)
    if rest - frozenset(_UNITS) in _STEP_TIME or rest == {"step", "s"}:
        return Role("step_s", unit=unit)
    return Role("time", _CLOCK.index(rest), unit) if rest in _CLOCK else None


def choose(columns: Mapping[str, Column], wanted: Columns, *, where: object) -> Choice:
    """The roles of a log's columns: as the user says, else by their names and how full they are.

    Raises:
        UsageError: a requested column does not exist, no column looks like a loss, or two match equally well.
    """
    signals: dict[str, str] = {}
    for signal, named in (
        ("loss", wanted.loss),
        ("gradient_norm", wanted.gradient_norm),
        ("learning_rate", wanted.learning_rate),
    ):
        if named is not None:
            signals[signal] = _named(columns, named, signal, where)
    by_role: dict[str, list[str]] = {}
    spoken_for = {*signals.values(), wanted.step}
    for name in columns:
        if name not in spoken_for:
            by_role.setdefault(role_of(name).what, []).append(name)
    if "loss" not in signals and "loss" in by_role:
        signals["loss"] = _the_loss(columns, by_role["loss"], where)
    for signal in (
        "gradient_norm",
        "gradient_norm_applied",
        "parameter_norm",
        "learning_rate",
        "loss_scale",
        "step_s",
        "epoch",
    ):
        if signal not in signals and signal in by_role:
            signals[signal] = _best(by_role[signal], columns)
    metrics = tuple(name for name in columns if is_metric(name) and len(columns[name]) >= METRIC_ROWS_MIN)
    if "loss" not in signals and "gradient_norm" not in signals and not metrics:
        raise UsageError(
            f"{where}: no column looks like a training loss; name it with --loss ({_shown(list(columns))})"
        )
    steps = (_named(columns, wanted.step, "step", where),) if wanted.step else _steps(columns, by_role.get("step", []))
    return Choice(
        signals=signals,
        steps=steps or _epochs(columns, signals, (*signals.values(), *metrics)),
        time=_best(by_role["time"], columns) if "time" in by_role else None,
        planned=_best(by_role["planned"], columns) if "planned" in by_role else None,
        skipped=_best(by_role["skipped"], columns) if "skipped" in by_role else None,
        carriers=tuple(signals[name] for name in ("loss", "gradient_norm") if name in signals)[:1] or metrics,
    )


def is_metric(name: str) -> bool:
    """Whether ``name`` is a score or an error whose better direction is known."""
    return direction(name) != 0 and role_of(name).what in ("evaluation", "other")


_OPTIONS = {"loss": "--loss", "step": "--step", "gradient_norm": "--grad-norm", "learning_rate": "--lr"}


def _named(columns: Mapping[str, Column], name: str, signal: str, where: object) -> str:
    """The column that the user means by ``name``: an exact match, or the only one with the same letters."""
    if name in columns:
        return name
    alike = [other for other in columns if other.strip().lower() == name.strip().lower()]
    if len(alike) == 1:
        return alike[0]
    near = difflib.get_close_matches(name, columns, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else _shown(list(columns))
    raise UsageError(f"{where}: {_OPTIONS[signal]} {name!r}: no such column with numbers; {hint}")


def _the_loss(columns: Mapping[str, Column], names: Sequence[str], where: object) -> str:
    fullest = max(len(columns[name]) for name in names)
    full = [name for name in names if len(columns[name]) >= COVERAGE_MIN * fullest]
    best_tier = min(role_of(name).tier for name in full)
    best = [name for name in full if role_of(name).tier == best_tier]
    if any(not _same(columns[best[0]], columns[other]) for other in best[1:]):
        shown = ", ".join(best[:NAMES_SHOWN_MAX])
        raise UsageError(
            f"{where}: {len(best)} columns look equally like the training loss ({shown}); "
            f"name one, as in --loss {best[0]!r}"
        )
    return best[0]


def _same(one: Column, other: Column) -> bool:
    return np.array_equal(one.rows, other.rows) and np.array_equal(one.values, other.values, equal_nan=True)


def _best(names: Sequence[str], columns: Mapping[str, Column]) -> str:
    """The best name; of equally good ones the first that is about as full as the fullest."""
    tier = min(role_of(name).tier for name in names)
    best = [name for name in names if role_of(name).tier == tier]
    fullest = max(len(columns[name]) for name in best)
    return next(name for name in best if len(columns[name]) >= COVERAGE_MIN * fullest)


def _steps(columns: Mapping[str, Column], names: Sequence[str]) -> tuple[str, ...]:
    """The step column, with further ones that occur only in rows without it (`iter 10: ...`, `step 10: val ...`)."""
    counting = [name for name in names if _counts(columns[name])]
    if not counting:
        return ()
    fullest = max(len(columns[name]) for name in counting)
    ordered = sorted(counting, key=lambda name: (len(columns[name]) < COVERAGE_MIN * fullest, role_of(name).tier))
    chosen, held = [ordered[0]], columns[ordered[0]].rows
    for name in ordered[1:]:
        if role_of(name).tier < _STEP_OF_CALLS and not np.isin(columns[name].rows, held).any():
            chosen.append(name)
            held = np.union1d(held, columns[name].rows)
    return tuple(chosen)


def _epochs(columns: Mapping[str, Column], signals: Mapping[str, str], held: Sequence[str]) -> tuple[str, ...]:
    """The epoch column, if a log has no other counter and one row per epoch."""
    carrier = signals.get("loss") or signals.get("gradient_norm") or next((n for n in held if is_metric(n)), None)
    if "epoch" not in signals or carrier is None:
        return ()
    values, there = columns[signals["epoch"]].at(columns[carrier].rows)
    counts = there.all() and np.isfinite(values).all() and (np.floor(values) == values).all()
    return (signals["epoch"],) if counts and len(values) > 1 and (np.diff(values) != 0).all() else ()


def _counts(column: Column) -> bool:
    """Whether the values are integers that change."""
    values = column.values[np.isfinite(column.values)]
    if not len(values):
        return False
    return bool((np.floor(values) == values).all()) and (len(values) == 1 or bool((values != values[0]).any()))


def _shown(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES_SHOWN_MAX} more" if len(names) > NAMES_SHOWN_MAX else ""
    return ("it has: " if names else "it has no numbers") + ", ".join(names[:NAMES_SHOWN_MAX]) + more


_NO_PROGRESS = frozenset(
    {
        "actor",
        "adv",
        "advantage",
        "adversarial",
        "critic",
        "discriminator",
        "disc",
        "episode",
        "gan",
        "generator",
        "gen",
    }
    | {"policy", "return", "returns", "reward", "rewards"}
)
_PREFERENCE = frozenset({"chosen", "rejected", "margins"})


def loss_may_rise(columns: Sequence[str]) -> bool:
    """Whether the columns belong to a loss that does not measure progress: of GANs, of policies and their critics."""
    every = {word for name in columns for word in words(name)}
    rivals = [{"g", "d"} & set(words(name)) for name in columns if "loss" in words(name)]
    return (bool(every & _NO_PROGRESS) or ({"g"} in rivals and {"d"} in rivals)) and not every & _PREFERENCE


_USUAL_NAME = re.compile(r"(trainer_(state|log)|metrics|log|train|output|history)\.\w+")


def name_of(path: Path) -> str:
    """The display name of a log: its file name, with its folder if the file name is a standard one."""
    resolved = path.absolute()
    return f"{resolved.parent.name}/{resolved.name}" if _USUAL_NAME.fullmatch(path.name) else resolved.name
