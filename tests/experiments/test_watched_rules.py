"""A symptom that is a rule of the script is judged by the rule in each trial, whatever the loss does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from steadytrain.core.model import Symptom
from steadytrain.experiments.contrast import ContrastPlan, contrasted
from steadytrain.experiments.judging import judge, shows
from steadytrain.experiments.specs import NotApplicable, Outcome
from steadytrain.experiments.trial_catalog import trial
from steadytrain.experiments.watched_rules import CARRIED_OVER, LOOKED, higher_loss
from trial_cases import finite_case, made

SUMMED = Symptom("gradients-carried-over", "warning", 2, 64, "gradients are not cleared")
CASE = finite_case(symptom=SUMMED, symptoms=(SUMMED,), onset=1, step=64)
FAST, SLOW = [2.0 - 0.1 * step for step in range(12)], [2.0 - 0.05 * step for step in range(12)]


def ran(name: str, losses: list[float], broken: float, looked: float = 11.0) -> Outcome:
    outcome = made(name, losses, [], begin=0)
    return replace(outcome, measured={LOOKED: looked, CARRIED_OVER: broken})


CONTROL = ran("unchanged", FAST, 11.0)


def test_the_control_shows_the_rule_and_not_the_loss() -> None:
    assert shows(CASE, CONTROL, [CONTROL]) == (True, "11 of 11 steps begin with the gradients of the one before")
    assert shows(CASE, ran("unchanged", FAST, 0.0), [])[0] is False


@pytest.mark.parametrize(("broken", "effect"), [(0.0, "removed"), (11.0, "persists"), (1.0, "persists")])
@pytest.mark.parametrize("losses", [SLOW, FAST, [loss / 9 for loss in FAST]], ids=["slower", "as fast", "far lower"])
def test_a_trial_is_judged_by_the_rule_whatever_its_loss_does(losses: list[float], broken: float, effect: str) -> None:
    assert judge("zero-grad", CASE, [CONTROL], [ran("zero-grad", losses, broken)]).effect == effect


def test_a_loss_that_is_higher_with_the_mend_is_told_beside_it() -> None:
    verdict = judge("zero-grad", CASE, [CONTROL], [ran("zero-grad", SLOW, 0.0)])
    assert verdict.why.startswith("0 of 11 steps begin with the gradients of the one before, in the control 11 of 11; ")
    assert higher_loss(verdict).startswith(
        "the loss may be higher for a while: it ends at 1.5, without the change at 1"
    )
    assert higher_loss(judge("zero-grad", CASE, [CONTROL], [ran("zero-grad", FAST, 0.0)])) == ""


def test_without_a_look_at_the_rule_the_loss_decides() -> None:
    blind = [replace(one, measured={}) for one in (CONTROL, ran("zero-grad", SLOW, 0.0))]
    assert judge("zero-grad", CASE, blind[:1], blind[1:]).effect == "persists"
    assert judge("zero-grad", CASE, [CONTROL], [ran("zero-grad", SLOW, 0.0, looked=1.0)]).effect == "persists"


def test_a_second_seed_proves_it_although_the_loss_is_higher() -> None:
    mended = ran("zero-grad", SLOW, 0.0)
    again = replace(mended, spec=replace(mended.spec, repeat=7))
    plan = ContrastPlan("zero-grad", (again.spec,), NotApplicable("none"))
    found = contrasted(trial("zero-grad"), CASE, [CONTROL], [mended], plan, [again])
    assert (found.held, found.why) == (True, "the same with another seed")


SUNK = Symptom("loss-turned-negative", "critical", 3, 64, "the loss is negative")
SINKS = finite_case(symptom=SUNK, symptoms=(SUNK,), onset=3, step=64)


def test_a_loss_below_zero_is_shown_though_nothing_rises() -> None:
    control = made("unchanged", [1.0, 0.2, -3.0, -40.0], [], begin=0)
    assert shows(SINKS, control, [control]) == (True, "2 of 4 steps have a loss below zero")
    assert judge("clip", SINKS, [control], [made("clip", [1.0, 0.3, -2.0, -9.0], [], begin=0)]).effect == "persists"
    later = judge("learning-rate-tenth", SINKS, [control], [made("learning-rate-tenth", [1.0, 0.9, 0.8], [], begin=0)])
    assert (later.effect, later.why.rpartition("; ")[2]) == ("inconclusive", "smaller steps may only come there later")
