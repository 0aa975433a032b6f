"""Helpers with which causes read a case. Each checks one thing and returns no sign or one.

All return tuples, so that a signature is a list of questions. What was not measured gives no sign: an absent fact
differs from a fact that is zero. No helper knows a cause.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from steadytrain.core.incident import Located
from steadytrain.core.model import Series, Symptom, Window
from steadytrain.diagnosis.cause import RULED_OUT, Sign
from steadytrain.experiments.case import SAME_STORY_STEPS
from steadytrain.experiments.facts import WITHOUT_SURVEY
from steadytrain.grouping.catalog import is_nonfinite

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case

Signs = tuple[Sign, ...]
NAMES_SHOWN = 4
READ_LATE_STEPS, RISING_STEPS = 16, 4
"""Layers are measured every 16 steps. In its first steps a warm-up doubles the rate."""

NEAR_STEPS = 2
"""A jump of the learning rate or a resume this close to the onset belongs to it."""


# Symptoms.


def seen(case: Case, *names: str) -> Symptom | None:
    """The first symptom with one of these names and a severity above note."""
    return next((s for s in case.symptoms if s.name in names and s.severity != "note"), None)


def noted(case: Case, *names: str) -> Symptom | None:
    """The first symptom with one of these names, including notes."""
    return next((s for s in case.symptoms if s.name in names), None)


def largest_input(case: Case) -> float:
    """The root mean square of the largest feature of the first input; 0.0 if unknown."""
    found = fact(case, "input_scale")
    return float(found["largest"]) if isinstance(found, Mapping) else 0.0


def quiet(case: Case) -> bool:
    """Whether no symptom is above a note."""
    return all(s.severity == "note" for s in case.symptoms)


def symptom(case: Case, weight: float, *names: str, invariant: bool = False, notes: bool = False) -> Signs:
    """A sign if one of these symptoms was seen; with ``notes``, also as a note."""
    found = noted(case, *names) if notes else seen(case, *names)
    if found is None:
        return ()
    numbers = {name: value for name, value in found.numbers.items() if math.isfinite(value)}
    return (Sign(found.message, weight, f"symptom {found.name}", numbers, invariant=invariant),)


def scales_apart(case: Case) -> bool:
    """Whether one rank was seen to train with another loss scale: what differs on it afterwards comes from that."""
    found = seen(case, "rank-settings")
    return found is not None and found.numbers.get("of_loss_scale") == 1.0


def without(case: Case, weight: float, what: str, *names: str) -> Signs:
    """A sign if none of these symptoms was seen."""
    return () if seen(case, *names) else (Sign(what, weight, "symptoms"),)


def not_finite(case: Case) -> bool:
    """Whether the incident is a NaN or Inf."""
    return any(map(is_nonfinite, case.symptoms)) or located(case) is not None


def finite(case: Case, weight: float, what: str = "everything stayed finite") -> Signs:
    return () if not_finite(case) else (Sign(what, weight, "symptoms"),)


def broke(case: Case, weight: float, what: str = "a loss or gradient was not finite") -> Signs:
    return (Sign(what, weight, "symptoms"),) if not_finite(case) else ()


# Facts of the survey.


def fact(case: Case, name: str) -> Any:
    """The fact of this name, None if unknown."""
    return case.facts.get(name)


def measured(case: Case, name: str) -> float:
    """A fact that is one number, NaN if unknown. NaN compares False, so it exceeds no bound."""
    value = fact(case, name)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else math.nan


def above(case: Case, name: str, bound: float, weight: float, what: str, *, invariant: bool = False) -> Signs:
    """A sign if a number is above ``bound``. ``what`` may contain ``{value}``."""
    value = measured(case, name)
    return _numbered(name, value, weight, what, invariant=invariant) if value > bound else ()


def below(case: Case, name: str, bound: float, weight: float, what: str, *, invariant: bool = False) -> Signs:
    """A sign if a number is below ``bound``. ``what`` may contain ``{value}``."""
    value = measured(case, name)
    return _numbered(name, value, weight, what, invariant=invariant) if value < bound else ()


def listed(case: Case, name: str, weight: float, what: str, *, invariant: bool = False) -> Signs:
    """A sign if a list or mapping is not empty. ``what`` may contain ``{names}`` and ``{count}``."""
    value = fact(case, name)
    if not isinstance(value, (Sequence, Mapping)) or isinstance(value, str) or not value:
        return ()
    text = what.format(names=enumerated(value), count=len(value))
    return (Sign(text, weight, f"fact {name}", {name: float(len(value))}, invariant),)


def holds(case: Case, name: str, weight: float, what: str, *, invariant: bool = False) -> Signs:
    """A sign if a fact is True."""
    return (Sign(what, weight, f"fact {name}", {name: 1.0}, invariant),) if fact(case, name) is True else ()


def fails(case: Case, name: str, weight: float, what: str, *, invariant: bool = False) -> Signs:
    """A sign if a fact is False. An unknown fact is not False."""
    return (Sign(what, weight, f"fact {name}", {name: 0.0}, invariant),) if fact(case, name) is False else ()


def absent(case: Case, name: str, weight: float, what: str) -> Signs:
    """A sign if a survey ran and found no such fact."""
    return (Sign(what, weight, f"fact {name}"),) if surveyed(case) and fact(case, name) is None else ()


def ruled_out(reached: bool, what: str, source: str = "facts") -> Signs:
    """A sign that the cause is impossible, if ``reached``: its precondition is absent."""
    return (Sign(what, RULED_OUT, source),) if reached else ()


def when(condition: bool, weight: float, what: str, source: str, *, invariant: bool = False, **numbers: float) -> Signs:
    """A sign for any other observation."""
    return (Sign(what, weight, source, numbers, invariant),) if condition else ()


def equivalence(signs: Signs) -> Signs:
    """The same signs, marked as a test with its own control."""
    return tuple(replace(sign, equivalence=True) for sign in signs)


def surveyed(case: Case) -> bool:
    """Whether a survey ran, so that an absent fact means absence."""
    return not case.facts.keys() <= WITHOUT_SURVEY


def rows_of(case: Case) -> tuple[int, ...]:
    """Outlying rows of the incident's batch, from the survey."""
    rows = fact(case, "rows_suspect")
    return tuple(int(row) for row in rows if isinstance(row, int)) if isinstance(rows, list) else ()


def enumerated(names: Iterable[Any]) -> str:
    """The first names of a list or mapping, and the number of the others."""
    texts = [_text(name) for name in names]
    more = f" and {len(texts) - NAMES_SHOWN} more" if len(texts) > NAMES_SHOWN else ""
    return ", ".join(texts[:NAMES_SHOWN]) + more


def first_name(case: Case, name: str) -> str | None:
    """The first name of a list or mapping of names, None if there is none."""
    value = fact(case, name)
    return str(next(iter(value))) if isinstance(value, (list, dict)) and value else None


def _text(name: Any) -> str:
    if isinstance(name, Mapping):
        return ", ".join(f"{key} {value}" for key, value in name.items())
    return " and ".join(map(str, name)) if isinstance(name, (list, tuple)) else str(name)


def _numbered(name: str, value: float, weight: float, what: str, *, invariant: bool) -> Signs:
    return (Sign(what.format(value=f"{value:.3g}"), weight, f"fact {name}", {name: value}, invariant),)


SAME_RANKS_MIN, OTHER_IDS_MAX = 0.9, 0.5
"""Shared mass of token frequencies. Halves of one text share more than 0.9 either way. Two texts of one tokenizer share
more than half of it id by id, because common words, punctuation and spaces are the same."""


def renumbered(case: Case, weight: float) -> Signs:
    """A sign if token frequencies match the earlier ones rank by rank, but with other ids."""
    found = fact(case, "token_overlap")
    if not isinstance(found, list) or len(found) != 2 or not (found[1] > SAME_RANKS_MIN and found[0] < OTHER_IDS_MAX):
        return ()
    text = f"token frequencies match by rank ({found[1]:.0%} shared), but not by id ({found[0]:.0%})"
    return (Sign(text, weight, "fact token_overlap", {"by_id": float(found[0]), "by_rank": float(found[1])}),)


LONG_MEMORY, FAR_MEMORY = 0.95, 0.98
"""A momentum of 0.9 to 0.95 is usual; from 0.98 on a step is fifty times the rate and lasts for fifty steps."""


def momentum_of(case: Case) -> float:
    """The decay of the first moment: SGD's momentum, or beta1 of Adam. NaN if unknown."""
    betas = fact(case, "betas")
    if isinstance(betas, list) and betas and isinstance(betas[0], (int, float)):
        return float(betas[0])
    return measured(case, "momentum")


# The finding.


def located(case: Case) -> Located | None:
    """The first bad operation, None if unknown."""
    return case.finding.located if case.finding is not None else None


def operation(
    case: Case, weight: float, what: str, matches: Callable[[Located], bool], *, invariant: bool = False
) -> Signs:
    """A sign if the first bad operation ``matches``. ``what`` may contain ``{operation}``, ``{line}`` and
    ``{module}``.
    """
    found = located(case)
    if found is None or not matches(found):
        return ()
    line = place_of(found)
    said = what.format(operation=found.operation, line=line, module=found.module or "the model")
    return (Sign(said, weight, "finding", invariant=invariant),)


CODE_CHARACTERS_MAX = 100


def place_of(found: Located) -> str:
    """The line of an operation, with its code: ``train.py:17: loss = a / b``."""
    if not found.file:
        return "an unknown line"
    code = " ".join((found.code or "").split())
    return f"{os.path.basename(found.file)}:{found.line}" + (f" ({code[:CODE_CHARACTERS_MAX]})" if code else "")


def layer_of(case: Case) -> str | None:
    """The module of the first bad operation, else the first tensor that a symptom names.

    None if the operation belongs to the loss, which the script computes, or to the whole model's own forward: the first
    bad gradient is then no useful place. That holds for a derivative whose forward line is known, too.
    """
    found = located(case)
    if found is not None and (found.module or found.line or found.phase in ("loss", "forward", "preprocessing")):
        return found.module or None
    return next((s.tensors[0] for s in case.symptoms if s.tensors and s.severity != "note"), None)


# The window.

CALM_STEPS, CALM_NOISES, CALM_GROWTH = 8, 6.0, 3.0
"""Before a value that is not finite, steps that are too long show: the loss rises beyond its noise, or the gradient
grows. Judged over the last steps, against those before."""


def calm_before(case: Case) -> bool:
    """Whether neither the loss nor the gradient grew before a value that was not finite. False if unknown.

    A rate that is too high destroys the run by steps that grow. Where nothing grew, a lower rate only comes later to
    the state that the script cannot digest (rewards that are all equal, a target at the edge).
    """
    bad = min((one.first_step for one in case.symptoms if is_nonfinite(one)), default=case.onset)
    if not not_finite(case) or case.onset < bad:  # a burst led to it
        return False
    loss, norm = (_before(case, name) for name in ("loss", "gradient_norm"))
    if min(len(loss), len(norm)) < 2 * CALM_STEPS:
        return False
    usual, last = loss[:-CALM_STEPS], loss[-CALM_STEPS:]
    risen = float(last.max()) > max(float(np.median(usual)) + CALM_NOISES * case.loss_noise(), float(usual.max()))
    return not risen and float(norm[-CALM_STEPS:].max()) <= CALM_GROWTH * float(np.median(norm[:-CALM_STEPS]))


def _before(case: Case, name: str) -> NDArray[np.float64]:
    series = case.window.series(name)
    return series.values[(series.steps < case.onset) & np.isfinite(series.values)]


def jump_of_rate(window: Window, onset: int) -> float:
    """The factor by which the learning rate rose near ``onset``: against the steps before, or from one step to the next
    shortly before it. At most 1 if unknown."""
    rates = window.series("learning_rate")
    return max(_rise_of_rate(rates, onset), _leap_of_rate(rates, onset))


def _leap_of_rate(rates: Series, onset: int) -> float:
    """The largest factor between two steps, searched further back because some signals are measured only every few
    steps.
    """
    near = (rates.steps >= onset - READ_LATE_STEPS) & (rates.steps <= onset) & (rates.steps > RISING_STEPS)
    values = rates.values[near]
    return float((values[1:] / values[:-1]).max()) if len(values) > 1 and bool((values > 0).all()) else 1.0


def _rise_of_rate(rates: Series, onset: int) -> float:
    before = rates.values[(rates.steps < onset - NEAR_STEPS) & (rates.steps >= onset - 32)]
    around = rates.values[(rates.steps >= onset - NEAR_STEPS) & (rates.steps <= onset)]
    if not len(before) or not len(around) or not before[-1] > 0:
        return 1.0
    return float(around.max() / before.max()) if before.max() > 0 else 1.0


RISES = ("divergence", "exploding-gradients", "lost-progress", "gradient-norm-spike", "loss-spike", "oscillation")
BURST_FROM, BURST_STEPS, LEVEL_STEPS, BURST_MIN, LEADS = 2, 20, 64, 3.0, 2.0
"""Steps around the onset in which a gradient leaps. Where a step overshoots, the gradient grows as the root of the loss
(or slower); where the loss has a cliff, the gradient is long before the loss is high."""

SOUND_STEPS_MIN = 8
"""After fewer steps no gradient is usual: a run that overshoots from its start leaps, too."""


def burst_of_gradient(case: Case) -> tuple[float, float]:
    """The largest gradient norm near the first rise over that of nine in ten steps before, and how many times further
    than the loss the norm leapt at the first step above three times its usual one. NaN if unknown, as in the first
    steps."""
    norms, losses = case.window.series("gradient_norm"), case.window.series("loss")
    # A rise that was long over is another story.
    rises = [one for one in case.symptoms if one.name in RISES and one.last_step >= case.onset - SAME_STORY_STEPS]
    rise = min((one.first_step for one in rises), default=case.onset)
    begin = min(rise, case.onset) - BURST_FROM
    sound = norms.values[(norms.steps < begin) & np.isfinite(norms.values)][-LEVEL_STEPS:]
    usual = float(np.quantile(sound, 0.9)) if len(sound) >= SOUND_STEPS_MIN else 0.0  # nothing is usual before
    near = (norms.steps >= begin) & (norms.steps <= begin + BURST_STEPS) & np.isfinite(norms.values)
    if not near.any() or usual <= 0:
        return math.nan, math.nan
    ratios = norms.values[near] / usual
    leapt = next((at for at, ratio in enumerate(ratios) if ratio > BURST_MIN), None)
    before = losses.values[(losses.steps < begin) & np.isfinite(losses.values)][-LEVEL_STEPS:]
    level = float(np.median(before)) if len(before) else 0.0
    if leapt is None or level <= 0:
        return float(ratios.max()), math.nan
    there = losses.values[losses.steps == norms.steps[near][leapt]]
    grew = max(float(there[0]) / level, 1.0) if len(there) and math.isfinite(there[0]) else math.nan
    return float(ratios.max()), float(ratios[leapt]) / grew


def resumed_near(case: Case, steps: int) -> bool:
    """Whether the run was resumed at most ``steps`` steps before the onset."""
    return any(0 <= case.onset - int(step) <= steps for step in case.window.resumed)


# Basic properties of a run.


def is_half(found: Located) -> bool:
    """Whether an input of the operation is float16, or the operation is a cast that turned a finite number into Inf."""
    cast = "_to_copy" in found.operation or found.operation.startswith("aten.to.")
    return (cast and found.produced == "inf") or any(
        "float16" in (operand.dtype or "") and "bfloat16" not in (operand.dtype or "") for operand in found.inputs
    )


def is_masked_softmax(found: Located) -> bool:
    """Whether the operation is a softmax or an attention."""
    return "softmax" in found.operation or "attention" in found.operation


def no_half(case: Case) -> bool:
    """Whether a survey saw no float16: neither in autocast nor in parameters, and no scaler."""
    if not surveyed(case) or fact(case, "scaler") is True or fact(case, "half_overflow"):
        return False
    kinds = (str(fact(case, "autocast_dtype") or ""), *map(str, fact(case, "parameter_dtypes") or ()))
    found = located(case)
    half = any(kind.removeprefix("torch.") in ("float16", "half") for kind in kinds) or bool(
        measured(case, "half_peak") > 0
    )
    return not half and not (found is not None and is_half(found))


def low_precision_weights(case: Case) -> bool:
    """Whether some parameters have 16 bits or fewer."""
    return any(
        str(kind).removeprefix("torch.") not in ("float32", "float64") for kind in fact(case, "parameter_dtypes") or ()
    )


def no_second_moment(case: Case) -> bool:
    """Whether the optimizer is known and keeps no running mean of squares."""
    return surveyed(case) and fact(case, "optimizer") is not None and fact(case, "betas") is None


def one_rank(case: Case) -> bool:
    """Whether the run is known to be a single process."""
    ranks = measured(case, "ranks")
    return ranks == 1 or (surveyed(case) and not ranks > 1)
