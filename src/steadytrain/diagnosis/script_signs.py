"""Signs from what the script itself computed, outside of its model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from steadytrain.diagnosis.signs import enumerated, fact, measured, noted, seen
from steadytrain.experiments.facts import LOADED

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


DIVIDES = re.compile(r"(?:.*\.)?(?:true_)?div(?:ide)?_?(?:\..*)?")

OTHERS_SHARE_MIN = 0.9
"""Share of the elements that the loss reaches and no optimizer holds."""


def holds_others(case: Case) -> bool:
    """Whether no parameter of the optimizer has a gradient, while those that the loss reaches are in no optimizer: it
    was given another model, such as a copy."""
    outside = noted(case, "parameters-outside-optimizer")
    share = outside.numbers.get("share", 0.0) if outside is not None else 0.0
    return share >= OTHERS_SHARE_MIN and seen(case, "optimizer-without-gradients") is not None


def gets_rounding_alone(case: Case) -> bool:
    """Whether all that reaches some parameters is the rounding of other gradients."""
    return "rounding_share" in _numbers(case, "frozen-parameters")


def begins_anew(case: Case) -> bool:
    """Whether a schedule begins again at a resume, with the moments of before: it, or its count, was not loaded."""
    found = _numbers(case, "incomplete-resume")
    return "highest" in found or (found.get("schedule") == 0.0 and found.get("moments", 0.0) > 0.0)


def sinks_without_bound(case: Case) -> bool:
    """Whether the loss fell faster and faster below zero: what is minimised has no lower bound."""
    return _numbers(case, "loss-turned-negative").get("without_bound") == 1.0


def _numbers(case: Case, name: str) -> Mapping[str, float]:
    """Those of the symptom of a name and a severity above note; none without it."""
    found = seen(case, name)
    return found.numbers if found is not None else {}


def trains_another_model(case: Case) -> bool:
    """Whether all that the loss reaches is in no optimizer."""
    outside = seen(case, "parameters-outside-optimizer")
    return outside is not None and outside.numbers.get("share", 0.0) >= 1.0


def made_by_script(case: Case) -> str:
    """Which operation of the script made NaN or Inf out of finite numbers in the step at fault; "" if none did."""
    one = _made(case)
    if one is None:
        return ""
    of = "0 / 0" if one["made"] == "NaN" and DIVIDES.fullmatch(str(one["operation"])) else "finite numbers"
    made = f"{one['operation']} makes {one['made']} out of {of}"
    return f"{made}{where_made(case)} at step {one['step']}: {one['line']}"


def made_before_model(case: Case) -> str:
    """Which operation of the script made the NaN or Inf that the model got, out of the finite numbers that were loaded;
    "" if none did, or the data held some, too."""
    found = case.finding.located if case.finding is not None else None
    bad = [one for one in fact(case, "batch_nonfinite") or () if one.get("step") in (case.onset, case.step)]
    if any(str(one.get("input", "")).endswith(LOADED) for one in bad):
        return ""
    if found is not None:
        at = f" at {found.file}:{found.line}" if found.file else ""
        return f"{found.operation}{at} made it out of finite numbers" if found.phase == "preprocessing" else ""
    one = _made(case)
    if one is None or not one.get("before_model"):
        return ""
    made, of = set(one.get("rows") or ()), one.get("of")
    samples = case.window.series("samples").between(case.onset, case.onset).values
    of_batch = not len(samples) or of in (None, int(samples[-1]))  # rows of classes or of nodes are others
    apart = of_batch and made and not all(made >= set(entry.get("rows") or ()) for entry in bad)
    return "" if apart else made_by_script(case)


def is_of_data(case: Case) -> bool:
    """Whether the script made the NaN or Inf when it prepared the batch, before the model got it."""
    found, one = case.finding.located if case.finding is not None else None, _made(case)
    return found.phase == "preprocessing" if found is not None else one is not None and bool(one.get("before_model"))


def made_in_preparation(case: Case) -> str:
    """Which operation of the script made the NaN or Inf of the batch when it prepared its data, before the first step;
    "" if none did. Its rows are those of the data set."""
    found, bad = fact(case, "nonfinite_made"), fact(case, "batch_nonfinite") or ()
    here = [one for one in bad if one.get("step") in (case.onset, case.step)]
    if not isinstance(found, list) or not here or _made(case) is not None:
        return ""
    rows = fact(case, "dataset_rows")
    early = (one for one in found if one.get("before_model") and one.get("step") == 1 and one.get("of") == rows)
    one = next(early, None) if rows else None
    if one is None:
        return ""
    calls, half = fact(case, "singular_calls"), fact(case, "half_overflow")
    met = [call for call in calls if call.get("line") == one["line"]] if isinstance(calls, list) else []
    zeros = f" of {met[0]['zeros']} zeros" if met and met[0].get("zeros") else ""
    in_half = isinstance(half, list) and any(str(each).endswith(str(one["line"])) for each in half)
    why = " in float16, where a number below 3e-8 is 0" if in_half else ""
    numbers = [str(row) for row in one.get("rows") or ()]
    where = f" in {'row' if len(numbers) == 1 else 'rows'} {enumerated(numbers)} of the data set" if numbers else ""
    return f"{one['operation']}{zeros}{why} made {one['made']}{where} before the first step: {one['line']}"


def made_in_half(case: Case) -> bool:
    """Whether that operation computed in float16, whose range or precision is then at fault, and not the data."""
    one, listed = _made(case), fact(case, "half_overflow")
    return one is not None and isinstance(listed, list) and any(str(each).endswith(str(one["line"])) for each in listed)


def where_made(case: Case) -> str:
    """In which rows of the batch that operation made it, and what its divisor is; "" if unknown.

    `` in row 20 (its divisor is the norm of a zero vector)``
    """
    one, rows = _made(case), rows_made(case)
    where = f" in row {rows[0]}" if len(rows) == 1 else f" in rows {enumerated(rows)}" if rows else ""
    divisor = _DIVISORS.get(one.get("by", "")) if one is not None else None
    return f"{where} (its divisor is {divisor})" if divisor else where


_DIVISORS = {
    **dict.fromkeys(("norm", "vector_norm"), "the norm of a zero vector"),
    "std": "the standard deviation of equal values",
    "var": "the variance of equal values",
    "sum": "a sum that is 0",
    "mean": "a mean that is 0",
}


def unequal_terms(case: Case) -> list[Mapping[str, Any]]:
    """The terms of the loss that outweigh another one because they were reduced differently."""
    found = fact(case, "loss_reductions")
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def weighs_unequal_terms(case: Case) -> bool:
    """Whether a number that changed stands in the line that adds up such terms."""
    lines = {one["line"] for one in unequal_terms(case)}
    changed = fact(case, "settings_changed")
    return isinstance(changed, list) and any(isinstance(one, Mapping) and one.get("line") in lines for one in changed)


def rows_made(case: Case) -> tuple[int, ...]:
    """The rows of the batch in which that operation made it; empty if unknown, or in all of them."""
    one, shown = _made(case), fact(case, "batch_rows")
    rows = {row.get("row") for row in shown} if isinstance(shown, list) else set()
    return tuple(row for row in one.get("rows") or () if row in rows) if one is not None else ()


def _made(case: Case) -> Mapping[str, Any] | None:
    found = fact(case, "nonfinite_made")
    steps = (case.onset, case.step)
    return next((one for one in found if one.get("step") in steps), None) if isinstance(found, list) else None


def lost_steps(case: Case, steps: int) -> float:
    """By how many steps the optimizer has counted fewer than the run; NaN if unknown.

    0 if that is because the script made another optimizer more than ``steps`` steps before the onset.
    """
    lag, since = measured(case, "state_step_lag"), case.environment.get("optimizer_since")
    made_long_ago = isinstance(since, int) and lag == since - 1 and case.onset - since > steps
    return 0.0 if made_long_ago else lag
