"""What is planned on several ranks, how a spec differs from rank to rank, and what the world of one tells."""

from __future__ import annotations

from dataclasses import replace

import pytest

from steadytrain.core.model import Symptom
from steadytrain.experiments.case import Case, Ranks
from steadytrain.experiments.rank_plans import ALONE, ON_RANKS, OTHER_BATCH, alone, on_rank
from steadytrain.experiments.specs import Change, Entry, NotApplicable, Outcome, Placebo, Spec, StepSeen
from steadytrain.experiments.trial_catalog import trial
from steadytrain.trial_runs.changes import change_kinds
from trial_cases import finite_case

NAN = Symptom("nonfinite-loss", "critical", 90, 90, "the loss is NaN")


def case_of(ranks: Ranks | None, **changed: object) -> Case:
    return replace(finite_case(), symptom=NAN, symptoms=(NAN,), step=90, ranks=ranks, **changed)


def test_every_change_that_ranks_may_get_is_one() -> None:
    assert set(change_kinds()) >= ON_RANKS - {OTHER_BATCH, ALONE}


def test_why_ranks_cannot_be_launched_is_the_reason_of_every_trial() -> None:
    case = case_of(Ranks(2, why_not="rank 1 has no tape"))
    for name in ("unchanged", "drop-batch", "one-rank", "learning-rate-tenth"):
        assert trial(name).plan(case) == NotApplicable("rank 1 has no tape")


def test_a_change_that_may_differ_from_rank_to_rank_is_not_tried() -> None:
    plan = trial("reinitialize").plan(case_of(Ranks(2)))
    assert isinstance(plan, NotApplicable)
    assert not isinstance(trial("reset-moments").plan(case_of(Ranks(2))), NotApplicable)


def test_no_probe_is_a_turn_of_the_loop_before_a_bad_step() -> None:
    (spec,) = trial("unchanged").plan(case_of(Ranks(2)))
    roles = [entry.role for entry in spec.schedule]
    assert "probe" not in roles[: roles.index("probe")]
    assert roles[0] == "train"
    assert trial("unchanged").plan(case_of(None))[0].schedule[0].role == "probe"


def test_only_the_failing_rank_gets_another_batch_and_in_the_placebo_another_rank_does() -> None:
    case = case_of(Ranks(2, failing=1))
    spec = trial("drop-batch").plan(case)[0]
    assert Entry(89) not in on_rank(spec, 1).schedule[90:]
    mine, theirs = ([e.step for e in on_rank(spec, rank).schedule if e.role == "train"] for rank in (1, 0))
    assert [(a, b) for a, b in zip(mine, theirs, strict=True) if a != b] == [(89, 90)]
    assert on_rank(spec, 1).changes == ()
    placebo = trial("drop-batch").placebo(case)
    assert isinstance(placebo, Placebo)
    assert placebo.what == "another batch on rank 0"
    assert on_rank(placebo.specs[0], 1).schedule == on_rank(spec, 0).schedule


def test_one_rank_runs_the_step_alone_together_and_with_another_rank() -> None:
    failing, together, other = trial("one-rank").plan(case_of(Ranks(2, failing=1, held=89)))
    assert [alone(one) for one in (failing, together, other)] == [1, None, 0]
    assert {(one.begin, one.schedule) for one in (failing, together, other)} == {(89, (Entry(90),))}


@pytest.mark.parametrize(
    ("case", "why"),
    [
        (finite_case(), "there is one process already"),
        (finite_case(facts={"ranks": 2}), "a script with several ranks cannot be launched again"),
        (replace(finite_case(), ranks=Ranks(2, held=89)), "it tells something of a step that is not finite"),
        (case_of(Ranks(2)), "do not all hold the state right before the step"),
    ],
)
def test_one_rank_says_why_it_does_not_apply(case: Case, why: str) -> None:
    plan = trial("one-rank").plan(case)
    assert isinstance(plan, NotApplicable)
    assert why in plan.why


def outcome(spec: Spec, *, finite: bool, notes: tuple[str, ...] = ()) -> Outcome:
    return Outcome(spec, True, steps=(StepSeen(0, 1.0, 1.0, finite),), notes=notes)


@pytest.mark.parametrize(
    ("failing", "together", "other", "effect"),
    [
        (False, False, True, "persists"),
        (False, False, False, "persists"),
        (True, False, True, "removed"),
        (True, True, True, "inconclusive"),
        (True, False, False, "inconclusive"),
    ],
)
def test_one_rank_is_judged_by_its_own_controls(failing: bool, together: bool, other: bool, effect: str) -> None:
    case = case_of(Ranks(2, failing=1, held=89))
    specs = trial("one-rank").plan(case)
    outcomes = [outcome(spec, finite=good) for spec, good in zip(specs, (failing, together, other), strict=True)]
    assert trial("one-rank").judge(case, (), outcomes).effect == effect


def test_one_rank_proves_nothing_without_its_control_or_with_a_batch_of_the_script() -> None:
    case = case_of(Ranks(2, failing=1, held=89))
    specs = trial("one-rank").plan(case)
    lone = [outcome(specs[0], finite=True)]
    assert trial("one-rank").judge(case, (), lone).effect == "inconclusive"
    own = [outcome(spec, finite=True, notes=("its own batch was used there",)) for spec in specs]
    assert trial("one-rank").judge(case, (), own).effect == "not-run"
    assert trial("one-rank").judge(case, (), [Outcome(specs[0], False, "killed")]).why == "killed"
    assert Change(ALONE, {"rank": 1}) in specs[0].changes
