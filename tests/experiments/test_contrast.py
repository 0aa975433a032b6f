"""What confirms holds against a second seed and a placebo: the traps, by hand-made outcomes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from steadytrain.diagnosis.cause import STRONG, Sign, Signature
from steadytrain.diagnosis.cause_catalog import causes
from steadytrain.diagnosis.proof import Control, Proof, proof
from steadytrain.diagnosis.weighing import Suspect
from steadytrain.experiments.case import Case
from steadytrain.experiments.contrast import (
    USUAL,
    Contrast,
    ContrastPlan,
    contrasted,
    effect_size,
    placebo_of,
    plan_contrast,
)
from steadytrain.experiments.health import stretch
from steadytrain.experiments.specs import Change, NotApplicable, Outcome, Placebo, Spec, Verdict
from steadytrain.experiments.trial import Trial
from steadytrain.experiments.trial_catalog import trial, trials
from trial_cases import CALM, FLAT, HURT, SPIKE, finite_case, made, window

CONTROL = made("unchanged", SPIKE, HURT)


@pytest.fixture
def case() -> Case:
    return finite_case(begins=(86,))


def outcome_of(spec: Spec, losses: Sequence[float], probes: Sequence[float]) -> Outcome:
    """An outcome with the losses of a hand-made run under the name, changes and repeat of ``spec``."""
    plain = made(spec.trial, losses, probes, changes=spec.changes)
    return replace(plain, spec=replace(plain.spec, repeat=spec.repeat))


def contrast(case: Case, name: str, again: Sequence[float], beside: Sequence[float]) -> Contrast:
    """The contrast of a trial whose second seed and placebo had these losses."""
    one = trial(name)
    plan = one.plan(case)
    assert not isinstance(plan, NotApplicable)
    made_plan = plan_contrast(one, case, plan[:1])
    assert isinstance(made_plan.placebo, Placebo)
    probes = {True: FLAT, False: HURT}
    seeds = [outcome_of(spec, again, probes[again == CALM]) for spec in made_plan.seeds]
    placebos = [outcome_of(spec, beside, probes[beside == CALM]) for spec in made_plan.placebo.specs]
    known = replace(
        made_plan,
        seeds=tuple(one.spec for one in seeds),
        placebo=replace(made_plan.placebo, specs=tuple(one.spec for one in placebos)),
    )
    first = outcome_of(plan[0], CALM, FLAT)
    return contrasted(one, case, [CONTROL], [first], known, [*seeds, *placebos])


def test_a_cure_that_comes_again_and_whose_placebo_does_nothing_holds(case: Case) -> None:
    found = contrast(case, "drop-batch", CALM, SPIKE)
    assert found.held
    assert (
        found.why == "the loss is 0.8 lower, and the same with another seed; leaving out the batch of step 88 does not"
    )
    assert [(row.trial, row.effect) for row in found.rows] == [
        ("drop-batch-second-seed", "removed"),
        ("drop-batch-placebo", "persists"),
    ]


def test_leaving_out_any_batch_proves_nothing(case: Case) -> None:
    """Steps that overshoot from the start, or a batch that only looks odd: one update fewer is what helps."""
    found = contrast(case, "drop-batch", CALM, CALM)
    assert not found.held
    assert found.why == "leaving out the batch of step 88 removes it as well, so drop-batch proves nothing"


def test_a_placebo_that_decides_nothing_is_no_placebo(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = type(trial("drop-batch"))
    judge = kind.judge

    def blind(one: Trial, case: Case, controls: Sequence[Outcome], outcomes: Sequence[Outcome]) -> Verdict:
        if any(outcome.spec.trial.endswith("placebo") for outcome in outcomes):
            return Verdict(one.name, "inconclusive", {}, "it begins with another loss")
        return judge(one, case, controls, outcomes)

    monkeypatch.setattr(kind, "judge", blind)
    found = contrast(case, "drop-batch", CALM, SPIKE)
    assert not found.held
    assert found.why.endswith("(leaving out the batch of step 88) decides nothing: it begins with another loss")


def test_a_cure_by_luck_proves_nothing(case: Case) -> None:
    found = contrast(case, "drop-batch", SPIKE, SPIKE)
    assert not found.held
    assert found.why.startswith("with another seed drop-batch did not remove it (")


def test_a_lower_rate_that_helps_against_everything_is_told_by_a_cut_at_another_moment(case: Case) -> None:
    assert contrast(case, "learning-rate-third", CALM, SPIKE).held
    found = contrast(case, "learning-rate-third", CALM, CALM)
    assert not found.held
    assert found.why.startswith(
        "the same cut of the rate in the 2 updates well before the onset alone removes it as well"
    )


def test_another_order_is_told_from_two_batches_that_change_places(case: Case) -> None:
    """Independent draws were called unshuffled data: the order only moved another batch to the judged step."""
    found = contrast(case, "reorder", CALM, CALM)
    assert found.why.startswith("letting the batches of steps 87 and 90 change places removes it as well")


def test_a_placebo_that_did_not_run_proves_nothing(case: Case) -> None:
    one = trial("beta2-lower")
    plan = plan_contrast(one, case, one.plan(case))  # type: ignore[arg-type]
    seeds = [outcome_of(spec, CALM, FLAT) for spec in plan.seeds]
    ran = replace(plan, seeds=tuple(one.spec for one in seeds))
    found = contrasted(one, case, [CONTROL], seeds, ran, seeds)
    assert not found.held
    assert "a random step as large as one update) did not run" in found.why


# What the placebos are.


def placebo_specs(name: str, case: Case) -> tuple[Spec, ...]:
    found = placebo_of(trial(name), case)
    assert isinstance(found, Placebo), found
    return found.specs


def test_every_trial_has_a_placebo_or_a_control_of_its_own(case: Case) -> None:
    own = {name for name in (one.name for one in trials()) if isinstance(placebo_of(trial(name), case), NotApplicable)}
    compared = {"shift-labels", "balance-router", "causal-mask", "loss-from-logits", "match-shapes", "same-noise"}
    assert own == {*compared, "one-rank"}


def test_the_placebos_differ_from_their_trials(case: Case) -> None:
    for one in trials():
        plan, beside = one.plan(case), placebo_of(one, case)
        if not isinstance(plan, NotApplicable) and isinstance(beside, Placebo) and one.name != USUAL:
            assert not set(plan) & set(beside.specs), one.name


def test_another_healthy_batch_is_left_out(case: Case) -> None:
    (spec,) = placebo_specs("drop-batch", case)
    assert [entry.step for entry in spec.schedule if entry.role == "refused"] == [88]


def test_a_rate_cut_ends_before_the_onset(case: Case) -> None:
    (spec,) = placebo_specs("learning-rate-third", case)
    assert spec.changes == (Change("learning-rate", {"factor": 1 / 3, "updates": 2}),)


def test_another_layer_is_frozen(case: Case) -> None:
    named = replace(case, window=replace(case.window, tensor_names=("layers.1.weight", "head.weight")))
    (spec,) = placebo_specs("freeze-layer", named)
    assert spec.changes == (Change("freeze-layer", {"layers": ["head.weight"]}),)
    assert placebo_specs("freeze-layer", case)[0].trial == USUAL


def test_a_placebo_of_another_package_that_fails_is_the_usual_one(case: Case) -> None:
    class Strange(type(trial("clip"))):  # type: ignore[misc]
        def placebo(self, case: Case) -> Placebo:
            raise RuntimeError("a stranger")

    one: Trial = Strange()
    found = placebo_of(one, case)
    assert isinstance(found, Placebo)
    assert found.specs[0].trial == USUAL


def test_the_second_seed_makes_the_same_change_with_other_random_numbers(case: Case) -> None:
    one = trial("learning-rate-third")
    plan = one.plan(case)
    assert not isinstance(plan, NotApplicable)
    (seed,) = plan_contrast(one, case, plan).seeds
    assert [change.kind for change in seed.changes] == ["learning-rate", "other-seed", "one-ulp"]
    assert plan_contrast(trial("unchanged"), case, ()).specs == ()


# The size of the effect.


def test_the_size_of_the_effect_has_an_interval(case: Case) -> None:
    better, best = made("clip", CALM, FLAT), made("clip", CALM, [2.0, 2.0, 2.0, 1.9, 1.8])
    found = effect_size(case, [CONTROL], [better, best])
    assert found["effect"] == pytest.approx(0.85)
    assert (found["effect_low"], found["effect_high"]) == (pytest.approx(0.8), pytest.approx(0.9))
    assert effect_size(case, [], [better]) == {}


def test_the_size_of_a_finite_effect_is_in_steps(case: Case) -> None:
    named = replace(case, symptom=replace(case.symptoms[0], name="nonfinite-loss"))
    control = made("unchanged", [2.0, 2.0, 2.0, math.nan], FLAT)
    found = effect_size(named, [control], [made("float32", CALM, FLAT), made("float32", CALM[:5], FLAT)])
    assert found == {"finite_steps": 2.5, "finite_steps_low": 2.0, "finite_steps_high": 3.0}


# A block of bad batches.


def garbage() -> Case:
    """Steps 90 to 93 of garbage, after which the loss falls back."""
    losses = [2.0 + 0.01 * (-1) ** step for step in range(89)] + [10.9, 9.0, 8.0, 8.5] + [2.05] * 7
    return finite_case(begins=(81,), window=window(losses, gradient_norm=0.5), step=93)


def test_a_block_as_long_as_the_stretch_of_the_symptom_is_dropped() -> None:
    case = garbage()
    assert (stretch(case), stretch(finite_case())) == (4, 1)
    plan = trial("drop-batch").plan(case)
    assert not isinstance(plan, NotApplicable)
    left = {spec.repeat: [entry.step for entry in spec.schedule if entry.role == "refused"] for spec in plan}
    assert left == {0: [90], 1: [89, 90, 91], 2: [90, 91, 92, 93]}
    (beside,) = placebo_specs("drop-batch", case)
    assert [entry.step for entry in beside.schedule if entry.role == "refused"] == [85, 86, 87, 88]


def test_garbage_that_only_goes_with_the_whole_block_is_named() -> None:
    case = garbage()
    control = made("unchanged", [*[2.0] * 8, 10.9, 9.0, 8.0, 8.5, 4.0], [2.0, 2.0, 5.0, 5.0], begin=81)

    def without(repeat: int, losses: Sequence[float], probes: Sequence[float]) -> Outcome:
        plain = made("drop-batch", losses, probes, begin=81)
        return replace(plain, spec=replace(plain.spec, repeat=repeat))

    hurt, calm = [*[2.0] * 8, 9.0, 8.0, 8.5, 4.0], [2.0] * 9
    runs = [
        without(0, hurt, [2.0, 2.0, 5.0, 5.0]),
        without(1, hurt, [2.0, 2.0, 5.0, 5.0]),
        without(2, calm, [2.0] * 4),
    ]
    verdict = trial("drop-batch").judge(case, [control], runs)
    assert (verdict.effect, verdict.why.split(":")[0]) == ("removed", "only without all of steps 90 to 93")


# The proof.


def proven(contrasts: dict[str, Contrast], effect: str = "removed") -> Proof:
    suspect = Suspect("bad-batch", causes()["bad-batch"], Signature((Sign("it was seen", STRONG, "fact x"),)))
    verdicts = {
        "drop-batch": Verdict("drop-batch", effect),  # type: ignore[arg-type]
        "beta2-lower": Verdict("beta2-lower", "persists"),
    }
    return proof(suspect, verdicts, Control(True, True, True, ""), (), surveyed=True, contrasts=contrasts)


def test_nothing_is_proven_before_its_placebo_ran() -> None:
    found = proven({})
    assert (found.proven, found.contrast) == (False, "drop-batch")
    assert found.lacks == "drop-batch removes it, but its placebo and a second seed were not run"


def test_what_a_placebo_does_as_well_proves_nothing() -> None:
    found = proven({"drop-batch": Contrast("drop-batch", False, "leaving out the batch of step 88 removes it as well")})
    assert (found.proven, found.lacks) == (False, "leaving out the batch of step 88 removes it as well")


def test_the_proof_says_what_the_placebo_did_not_do() -> None:
    found = proven({"drop-batch": Contrast("drop-batch", True, "leaving out the batch of step 88 does not")})
    assert found.proven
    assert found.by.endswith("beta2-lower does not; leaving out the batch of step 88 does not")


@pytest.mark.parametrize("effect", ["delayed", "inconclusive"])
def test_later_or_less_proves_nothing_even_where_a_rule_is_broken(effect: str) -> None:
    broken = Signature((Sign("a rule is broken", STRONG, "fact x", invariant=True),))
    verdicts = {"zero-grad": Verdict("zero-grad", effect, {"final_excess": -2.0})}  # type: ignore[arg-type]
    suspect = Suspect("missing-zero-grad", causes()["missing-zero-grad"], broken)
    held = {"zero-grad": Contrast("zero-grad", True, "")}
    found = proof(suspect, verdicts, Control(True, True, True, ""), (), surveyed=True, contrasts=held)
    assert not found.proven


def test_the_effect_on_a_loss_above_a_guess_is_how_much_lower_it_ends(case: Case) -> None:
    assert case.symptom is not None
    above = replace(case, symptom=replace(case.symptom, name="loss-above-guess", numbers={"bound": 2.9}))
    control = made("unchanged", CALM, [92.0, 60.0, 30.0, 15.0, 8.0])
    found = effect_size(above, [control], [made("reinitialize", CALM, [1.7, 1.6, 1.6, 1.6, 1.5])])
    assert found["effect"] == pytest.approx(6.5)


def test_a_change_that_does_not_lower_a_loss_without_progress_proves_nothing(case: Case) -> None:
    """A trial may see its own quantity mended, as the shares of a router, while the loss stays what it was."""
    assert case.symptom is not None
    stuck = replace(case, symptom=replace(case.symptom, name="no-learning"))
    assert stuck.aim == "progress"
    mended = cast(Trial, SimpleNamespace(name="balance-router"))
    plan = ContrastPlan("balance-router", (), NotApplicable("none is known"))
    control, same, better = made("unchanged", CALM, HURT), made("balance-router", CALM, HURT), made("x", CALM, FLAT)
    assert not contrasted(mended, stuck, [control], [same], plan, []).held
    assert contrasted(mended, stuck, [control], [better], plan, []).held
