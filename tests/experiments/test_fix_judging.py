"""A fix is followed, and judged like a trial."""

from __future__ import annotations

from dataclasses import replace

import pytest

from steadytrain.core.errors import UsageError
from steadytrain.experiments.case import Case
from steadytrain.experiments.fix_verification import plan_fix, steps_to_follow, verified
from steadytrain.experiments.specs import Change
from steadytrain.experiments.trial_catalog import trial
from trial_cases import CALM, FLAT, HURT, SPIKE, finite_case, made


@pytest.fixture
def case() -> Case:
    return finite_case(begins=(86,))


def test_how_long_a_fix_is_followed() -> None:
    case = finite_case(begins=(81,))
    assert steps_to_follow(case, None) == 27
    assert steps_to_follow(case, 0.95) == 27
    assert steps_to_follow(case, 0.999) == 1000
    assert steps_to_follow(finite_case(begins=(88,), onset=90), None) == 10


def test_a_fix_with_another_number(case: Case) -> None:
    (spec,) = plan_fix(case, "learning-rate-third", 0.5)
    assert spec.changes == (Change("learning-rate", {"factor": 0.5}),)
    (spec,) = plan_fix(case, "rewarm", 40.0)
    assert spec.changes == (Change("ramp-learning-rate", {"steps": 40}),)
    with pytest.raises(UsageError, match="no single number"):
        plan_fix(case, "drop-batch", 2.0)
    with pytest.raises(UsageError, match="no broken tie is known"):
        plan_fix(case, "retie", None)


def test_the_price_of_a_fix(case: Case) -> None:
    control, fixed = made("unchanged", SPIKE, HURT, exact=True), made("clip", CALM, [2.0, 2.01, 2.01, 2.01, 2.015])
    found = verified(case, trial("clip"), "clip", [control], [fixed])
    assert found.verdict.effect == "removed"
    assert found.price_before == pytest.approx(2.01 - 2.8)
    assert found.price_end == pytest.approx(2.015 - 2.8)
    shown = found.to_json("incident")
    assert (shown["schema"], shown["result"], shown["control_exact"]) == ("steadytrain.verify/1", "removed", True)


def test_a_fix_says_how_far_it_was_followed_and_what_it_changed(case: Case) -> None:
    change = (Change("learning-rate", {"factor": 0.5}),)
    control = made("unchanged", SPIKE, HURT, exact=True)
    whole = made("clip", CALM, [2.0, 2.01, 2.01, 2.01, 2.015], changes=change)
    short = replace(whole, steps=whole.steps[:5], probes=whole.probes[:2], ended="the script's loop was over")
    found = [verified(case, trial("clip"), "clip", [control], [one]) for one in (whole, short)]
    assert [one.followed for one in found] == [len(CALM) - (case.onset - 86), 5 - (case.onset - 86)]
    assert found[1].ended == "the script's loop was over"
    assert found[0].changed == ("learning-rate (factor 0.5)",)


def test_a_script_that_fails_with_the_fix_was_run(case: Case) -> None:
    failed = replace(
        made("clip", CALM, FLAT), ran=False, why_not="the script failed: NameError: x", steps=(), probes=()
    )
    found = verified(case, trial("clip"), "clip", [made("unchanged", SPIKE, HURT, exact=True)], [failed])
    assert (found.crashed, found.followed) == (True, 0)
    assert found.meaning == "the script itself failed with it"
    assert found.to_json("incident")["result"] == "not run"


@pytest.mark.parametrize(
    ("name", "effect"), [("untied-weights", "inconclusive"), ("loss-spike", "persists")], ids=["a rule", "a rise"]
)
def test_that_the_loss_stays_is_no_evidence_against_the_mend_of_a_rule_that_is_not_watched(
    case: Case, name: str, effect: str
) -> None:
    assert case.symptom is not None
    broken = replace(case, symptom=replace(case.symptom, name=name))
    control, fixed = (made(one, SPIKE, HURT, exact=True) for one in ("unchanged", "clip"))
    found = verified(broken, trial("clip"), "clip", [control], [fixed]).verdict
    assert found.effect == effect
    assert ("the loss need not show untied-weights" in found.why) == (effect == "inconclusive")
