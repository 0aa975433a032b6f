"""Symptoms that are a rule: a trial judges them by the rule, if it can watch it while it runs. Pure.

What a script does wrong need not show in its loss: a sum of gradients may train faster than one gradient. A trial
counts the steps that broke the rule (``Outcome.measured``). The losses are only shown. A loss that may not be negative
is such a rule, too: it does not rise.
"""

from __future__ import annotations

from collections.abc import Mapping

from steadytrain.experiments.case import Case
from steadytrain.experiments.specs import Outcome, Verdict
from steadytrain.experiments.training_fall import end_of
from steadytrain.grouping.catalog import declared, needed_tables

LOOKED = "rule_steps"
"""The number of steps of a trial in which it looked at its rules."""

CARRIED_OVER = "carried_over_steps"
"""The number of those that began with the gradients that the update before had applied."""

IN_EVALUATION = "evaluation_mode_steps"
"""The number of steps that a model trained in evaluation mode."""

LOOKED_MIN = 2
"""Steps that must have kept a rule, so that the finding is gone."""

_WATCHED: Mapping[str, tuple[str, str]] = {
    "gradients-carried-over": (CARRIED_OVER, "begin with the gradients of the one before"),
    "left-in-evaluation": (IN_EVALUATION, "train in evaluation mode"),
}
"""The rules that every trial watches, by their symptom: the number of steps that broke it, and what such steps do."""


def broken_rule(case: Case) -> str:
    """The symptom of a case if it is a rule that the script itself breaks: its loss need not show that; else ""."""
    return case.symptom.name if case.symptom is not None and needed_tables(case.symptom.name) == {"script"} else ""


def _is_below_zero(case: Case) -> bool:
    return case.symptom is not None and declared(case.symptom.name).is_below_zero


def shows_rule(case: Case, outcome: Outcome) -> tuple[bool, str] | None:
    """Whether a run breaks the rule that the case is about, and a text with the counts; None if it was not watched."""
    name, does = _WATCHED.get(broken_rule(case), ("", ""))
    looked, broken = outcome.measured.get(LOOKED, 0.0), outcome.measured.get(name)
    if _is_below_zero(case):
        losses = [seen.loss for seen in outcome.steps if seen.loss is not None]
        looked, broken, does = float(len(losses)), float(sum(loss < 0.0 for loss in losses)), "have a loss below zero"
    if broken is None or (looked < LOOKED_MIN and not broken):
        return None
    return broken > 0, f"{broken:.0f} of {looked:.0f} steps {does}"


def judged_by_rule(trial: str, case: Case, control: Outcome, outcome: Outcome) -> Verdict | None:
    """The verdict of a trial whose control breaks the rule that the case is about; None if no rule decides."""
    there, here = shows_rule(case, control), shows_rule(case, outcome)
    if there is None or here is None or not there[0]:
        return None
    why = f"{here[1]}, in the control {there[1].partition(' steps ')[0]}"
    numbers: dict[str, float] = {}
    ends = end_of(outcome), end_of(control)
    if ends[0] is not None and ends[1] is not None:
        why += f"; the training loss ends at {ends[0]:.3g}, in the control at {ends[1]:.3g}"
        numbers = {"loss": ends[0], "control_loss": ends[1]}
    if not here[0] and _is_below_zero(case):
        return Verdict(trial, "inconclusive", numbers, f"{why}; smaller steps may only come there later")
    return Verdict(trial, "persists" if here[0] else "removed", numbers, why)


def higher_loss(verdict: Verdict) -> str:
    """That the loss was higher with a change that mends a rule, "" if it was not."""
    here, there = verdict.numbers.get("loss"), verdict.numbers.get("control_loss")
    if verdict.effect != "removed" or here is None or there is None or here <= there:
        return ""
    return f"the loss may be higher for a while: it ends at {here:.3g}, without the change at {there:.3g}"
