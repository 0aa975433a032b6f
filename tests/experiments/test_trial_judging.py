"""Verdicts: quiet cases first, then what has to be told apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from steadytrain.experiments.case import Case
from steadytrain.experiments.judging import judge, measures, shows
from steadytrain.experiments.outcome_measures import excess_of
from steadytrain.experiments.paired_runs import reaches_further
from steadytrain.experiments.result_table import document, lines
from steadytrain.experiments.specs import OWN_TARGETS, Change, Outcome, Spec, Verdict
from steadytrain.experiments.trial_catalog import trial
from steadytrain.experiments.trials.drop_batch import HARMLESS
from trial_cases import CALM, FLAT, HURT, SPIKE, finite_case, made

BEGIN = 86


@pytest.fixture
def case() -> Case:
    return finite_case(begins=(BEGIN,))


def effect(case: Case, control: Outcome, outcome: Outcome, *others: Outcome) -> str:
    return judge(outcome.spec.trial, case, [control, *others], [outcome]).effect


def test_a_control_that_shows_nothing_concludes_nothing(case: Case) -> None:
    control = made("unchanged", CALM, FLAT)
    assert shows(case, control, [control])[0] is False
    assert effect(case, control, made("clip", CALM, FLAT)) == "inconclusive"
    assert judge("clip", case, [], [made("clip", CALM, FLAT)]).effect == "inconclusive"
    assert judge("clip", case, [control], []).effect == "not-run"


@pytest.mark.parametrize(
    ("begin", "probes", "expected"),
    [
        (1, [2.4, 2.2, 1.0, 0.2, 0.08], "removed"),
        (1, [2.4, 2.3, 2.2, 2.0, 1.8], "inconclusive"),
        (1, [2.4, 9.0, 3.0, 0.2, 0.08], "inconclusive"),
        (1, [2.4, 2.2, 1.0, 0.2, math.nan], "inconclusive"),
        (33, [2.4, 2.2, 1.0, 0.2, 0.08], "inconclusive"),
    ],
    ids=["learns", "little more", "rises first", "not finite", "not from the start"],
)
def test_a_run_that_never_learned_is_mended_by_what_makes_it_learn(
    begin: int, probes: list[float], expected: str
) -> None:
    """A loss that rises by chance, in a run that stands at its guess, shows on no fixed batch."""
    early = finite_case(begins=(begin,))
    control = made("unchanged", CALM, [2.4, 2.35, 2.3, 2.1, 2.1], begin=begin)
    assert shows(early, control, [control]) == (False, "nothing rises")
    assert effect(early, control, made("longer-warmup", CALM, probes, begin=begin)) == expected
    learned = made("unchanged", CALM, [2.4, 2.35, 2.0, 1.7, 1.66], begin=begin)
    assert effect(early, learned, made("longer-warmup", CALM, probes, begin=begin)) == "inconclusive"


def test_a_control_from_a_later_state_is_none(case: Case) -> None:
    """The state right before the step may hold the damage: a trial from an earlier one needs its own control."""
    mended, control = made("rewarm", CALM, FLAT), made("unchanged", SPIKE, HURT)
    late = replace(control, spec=replace(control.spec, begin=BEGIN + 3))
    verdict = judge("rewarm", case, [late], [mended])
    assert (verdict.effect, "no unchanged replay from where it starts" in verdict.why) == ("inconclusive", True)
    assert judge("rewarm", case, [late, control], [mended]).effect == "removed"


@pytest.mark.parametrize(
    ("peak", "expected"),
    [
        (2.01, "removed"),
        (2.015, "removed"),
        (2.15, "inconclusive"),
        (2.3, "inconclusive"),
        (2.7, "persists"),
        (3.5, "worse"),
        (math.inf, "worse"),
    ],
)
def test_damage_is_judged_by_the_probes(case: Case, peak: float, expected: str) -> None:
    control = made("unchanged", SPIKE, HURT)
    assert effect(case, control, made("clip", CALM, [2.0, 2.0, 2.01, peak, peak])) == expected


def tenth_of_the_rate(spec: Spec) -> Spec:
    """A tenth of the rate makes a tenth of every update, and mends nothing by that."""
    return replace(spec, trial="learning-rate-tenth", changes=(Change("learning-rate", {"factor": 0.1}),))


def test_an_update_that_grows_is_judged_before_a_hard_batch_near_it(case: Case) -> None:
    """The batch is as hard in every state; what was raised is the update, which only one trial keeps small."""
    named = replace(case, symptom=replace(case.symptom, name="update-norm-spike")) if case.symptom else case
    grown = [0.004, 0.004, 0.004, 0.29, 0.25, 0.2]

    def of(name: str, updates: Sequence[float]) -> Outcome:
        plain = made(name, SPIKE, FLAT)
        steps = (replace(step, update_ratio=ratio) for step, ratio in zip(plain.steps, updates, strict=True))
        return replace(plain, steps=tuple(steps))

    control = of("unchanged", grown)
    assert shows(named, control, [control])[1].startswith("the update grows")
    assert effect(named, control, of("reset-moments", [0.004] * 6)) == "removed"
    assert effect(named, control, of("rewarm", grown)) == "persists"
    tenth = replace(of("learning-rate-tenth", [one / 10 for one in grown]), spec=tenth_of_the_rate(control.spec))
    assert effect(named, control, tenth) == "inconclusive"
    still = replace(of("learning-rate-tenth", [one / 100 for one in grown]), spec=tenth_of_the_rate(control.spec))
    verdict = trial("learning-rate-tenth").judge(named, [control], [still])
    assert verdict.effect == "inconclusive"
    assert verdict.why.endswith("; a smaller rate alone makes smaller updates")


def test_a_value_that_is_not_finite_in_the_trial_alone_is_worse(case: Case) -> None:
    verdict = judge("clip", case, [made("unchanged", SPIKE, HURT)], [made("clip", [2.0, math.nan], FLAT[:2])])
    assert (verdict.effect, verdict.why) == ("worse", "a value is not finite, which the control does not show")


def test_progress_is_judged_by_probes_and_by_how_much_more_they_fall(case: Case) -> None:
    stuck = replace(case, symptom=replace(case.symptom, name="no-learning")) if case.symptom else case
    control = made("unchanged", CALM, [2.0, 1.9, 1.8, 1.7, 1.6])
    twice = judge("learning-rate-up", stuck, [control], [made("learning-rate-up", CALM, [2.0, 1.8, 1.6, 1.4, 1.2])])
    assert (twice.effect, twice.why) == (
        "inconclusive",
        "loss on fixed batches changes by -0.8, in the control by -0.4",
    )
    unseen = judge("learning-rate-up", stuck, [control], [made("learning-rate-up", CALM[:1], [2.0])])
    assert (unseen.effect, unseen.why) == ("inconclusive", "no probes to judge progress by")


@pytest.mark.parametrize(
    ("last", "expected"),
    [(1.1, "removed"), (2.8, "removed"), (3.1, "inconclusive"), (7.0, "persists"), (8.5, "persists"), (13.0, "worse")],
)
def test_a_loss_above_a_guess_is_judged_by_its_level(case: Case, last: float, expected: str) -> None:
    assert case.symptom is not None
    above = replace(case, symptom=replace(case.symptom, name="loss-above-guess", numbers={"bound": 2.9}))
    control = made("unchanged", CALM, [92.0, 60.0, 30.0, 15.0, 8.0])
    verdict = judge("reinitialize", above, [control], [made("reinitialize", CALM, [1.7, 1.6, 1.6, 1.6, last])])
    assert verdict.effect == expected
    assert verdict.why == f"the loss on fixed batches ends at {last:.3g}, in the control at 8; far above a guess is 2.9"


@pytest.mark.parametrize(
    ("peak", "expected"),
    [(4e5, "inconclusive"), (8e5, "inconclusive"), (90.0, "inconclusive"), (2.015, "removed"), (1.9e6, "persists")],
)
def test_a_smaller_burst_is_no_cure(case: Case, peak: float, expected: str) -> None:
    control = made("unchanged", SPIKE, [2.0, 2.0, 2.01, 2e6, 2e6])
    assert effect(case, control, made("drop-batch", CALM, [2.0, 2.0, 2.01, peak, peak])) == expected


def test_the_training_loss_of_a_trial_with_other_data_does_not_count(case: Case) -> None:
    control = made("unchanged", SPIKE, HURT)
    assert effect(case, control, made("fresh-data", [0.1] * 6, HURT)) == "persists"
    assert effect(case, control, made("fresh-data", CALM, FLAT)) == "removed"


def test_a_spike_without_damage_is_judged_by_the_losses_and_says_so(case: Case) -> None:
    control = made("unchanged", SPIKE, FLAT)
    verdict = judge("clip", case, [control], [made("clip", CALM, FLAT)])
    assert verdict.effect == "removed"
    assert "fixed batches show no damage" in verdict.why
    assert effect(case, control, made("clip", SPIKE, FLAT)) == "persists"


def test_controls_that_differ_make_the_difference_noise(case: Case) -> None:
    control, other = made("unchanged", SPIKE, HURT), made("perturbed", SPIKE, [2.0, 2.0, 2.01, 2.3, 2.2])
    reduced = made("clip", SPIKE, [2.0, 2.0, 2.01, 2.22, 2.22])
    assert effect(case, control, reduced) == "inconclusive"
    assert effect(case, control, reduced, other) == "inconclusive"  # and never removed by a floor above its excess


def test_what_is_not_finite_is_judged_by_when(case: Case) -> None:
    case = replace(case, symptom=replace(case.symptoms[0], name="nonfinite-loss"))
    control = made("unchanged", [2.0, 2.0, 2.0, math.nan], FLAT)
    assert shows(case, control, [control])[0]
    assert effect(case, control, made("float32", CALM, FLAT)) == "removed"
    assert effect(case, control, made("float32", [2.0, 2.0, 2.0, math.nan], FLAT)) == "persists"
    assert effect(case, control, made("float32", [2.0] * 7 + [math.inf], FLAT)) == "delayed"
    assert effect(case, control, made("float32", [2.0, math.nan], FLAT)) == "worse"
    verdict = judge("float32", case, [control], [made("float32", [2.0, math.nan], FLAT)])
    assert verdict.numbers["first_bad_step"] == BEGIN + 2


def test_a_dropped_batch_after_which_it_comes_at_once_persists(case: Case) -> None:
    case = replace(case, symptom=replace(case.symptoms[0], name="nonfinite-loss"))
    control = made("unchanged", [2.0, 2.0, 2.0, math.nan], FLAT)
    late = made("drop-batch", [2.0, 2.0, 2.0, 2.0, math.nan], FLAT)
    schedule = tuple(replace(e, role="refused") if e.step in (89, 90) else e for e in late.spec.schedule)
    steps = tuple(seen for seen in late.steps if schedule[seen.entry].role == "train")
    dropped = replace(late, spec=replace(late.spec, schedule=schedule), steps=steps)
    assert effect(case, control, dropped) == "persists"


def test_a_run_that_does_not_learn_is_judged_by_how_far_the_probes_fall(case: Case) -> None:
    case = replace(case, symptom=replace(case.symptoms[0], name="no-learning"))
    control = made("unchanged", CALM, [2.3, 2.3, 2.3, 2.29])
    assert effect(case, control, made("learning-rate-up", CALM, [2.3, 2.0, 1.5, 1.0])) == "removed"
    assert effect(case, control, made("clip", CALM, [2.3, 2.3, 2.3, 2.29])) == "persists"
    assert effect(case, control, made("clip", CALM, [2.3, 2.6, 3.0, 3.3])) == "worse"


def test_who_stands_quite_still_is_seen_to_begin_to_move(case: Case) -> None:
    """A rate that is a thousand times too low: ten times of it goes ten times as far, which is not far."""
    case = replace(case, symptom=replace(case.symptoms[0], name="no-learning"))
    control = made("unchanged", CALM, [2.3, 2.2998, 2.2997, 2.2995])
    assert effect(case, control, made("learning-rate-up", CALM, [2.3, 2.298, 2.297, 2.295])) == "removed"
    assert effect(case, control, made("rewarm", CALM, [2.3, 2.2998, 2.2997, 2.2994])) == "persists"
    noisy = made("unchanged", CALM, [2.3, 2.296, 2.303, 2.2995])
    assert effect(case, noisy, made("reorder", CALM, [2.3, 2.298, 2.297, 2.295])) == "persists"


@pytest.mark.parametrize(("signals", "seen"), [(("loss",), True), (("tensors.exp_avg_sq_nonfinite",), False)])
def test_what_no_trial_measures_is_not_gone_because_nothing_rises(
    case: Case, signals: tuple[str, ...], seen: bool
) -> None:
    name = "divergence" if seen else "nonfinite-optimizer-state"
    assert measures(replace(case, symptom=replace(case.symptoms[0], name=name, signals=signals))) is seen


def test_a_trial_that_ended_before_its_control_removed_nothing(case: Case) -> None:
    control = made("unchanged", SPIKE, HURT)
    short = made("clip", CALM[:4], FLAT, ended="the script's loop was over after 4 of 6 steps")
    verdict = judge("clip", case, [control], [short])
    assert verdict.effect == "inconclusive"
    assert "2 steps before the control" in verdict.why


def test_repeats_that_differ_conclude_nothing(case: Case) -> None:
    control = made("unchanged", SPIKE, HURT)
    two = [made("clip", SPIKE, HURT), made("clip", CALM, FLAT)]
    assert judge("clip", case, [control], two).effect == "inconclusive"


def test_a_suspect_batch_that_strikes_at_once_persists(case: Case) -> None:
    control = made("unchanged", SPIKE, HURT)
    at_once = made("suspect-batch-earlier", [9.0, 4.0, 3.0, 2.0, 2.0, 2.0], [2.0, 2.9, 2.5, 2.3, 2.2])
    assert trial("suspect-batch-earlier").judge(case, [control], [at_once]).effect == "persists"
    clean = made("suspect-batch-earlier", CALM, FLAT)
    assert trial("suspect-batch-earlier").judge(case, [control], [clean]).effect == "removed"


def test_a_control_that_rises_until_it_is_not_finite(case: Case) -> None:
    control = made("unchanged", [2.0, 2.0, 2.0, 9.0, math.nan], HURT)
    assert effect(case, control, made("clip", CALM, FLAT)) == "removed"
    assert effect(case, control, made("clip", SPIKE, HURT)) == "inconclusive"
    assert effect(case, control, made("clip", [*CALM, 2.0, 9.0], HURT)) == "delayed"
    assert effect(case, control, made("clip", [2.0, 2.0, 2.0, 9.0, math.nan], HURT)) == "persists"


def test_a_change_without_any_effect_is_told(case: Case) -> None:
    control = made("unchanged", SPIKE, HURT, exact=True)
    same = made("one-thread", SPIKE, HURT, exact=True, changes=(Change("one-thread"),))
    verdict = judge("one-thread", case, [control], [same])
    assert verdict.effect == "persists"
    assert "bit-identical to the recording" in verdict.why
    assert "bit-identical" not in judge("unchanged", case, [control], [control]).why


def test_excess_needs_two_points() -> None:
    assert excess_of(made("clip", [], [2.0])) is None


def test_the_table(case: Case) -> None:
    control, clip = made("unchanged", SPIKE, HURT, exact=True, seconds=1.0), made("clip", CALM, FLAT, seconds=2.0)
    outcomes = {"clip": [clip], "unchanged": [control]}
    verdicts = {name: trial(name).judge(case, [control], those) for name, those in outcomes.items()}
    verdicts["retie"] = judge("retie", case, [control], [])
    found = document("incident", case, verdicts, outcomes)
    assert [row["trial"] for row in found["trials"]] == ["unchanged", "clip", "retie"]
    assert found["control"] == {"shown": True, "exact": True, "why": "loss on fixed batches rises by 0.8"}
    text = "\n".join(lines(found))
    assert "unchanged (control)  persists" in text
    assert "bit-identical" in text
    assert "retie: nothing was run" in text


def dropped(repeat: int, losses: Sequence[float], probes: Sequence[float]) -> Outcome:
    outcome = made("drop-batch", losses, probes)
    return replace(outcome, spec=replace(outcome.spec, repeat=repeat))


@pytest.mark.parametrize(
    ("alone", "beside", "expected", "told"),
    [
        ((CALM, FLAT), (CALM, FLAT), "removed", "without the batch alone"),
        ((SPIKE, HURT), (CALM, FLAT), "removed", "only without its neighbours too"),
        ((SPIKE, HURT), (SPIKE, HURT), "persists", ""),
    ],
    ids=["alone", "with-neighbours", "neither"],
)
def test_a_batch_is_dropped_alone_and_with_its_neighbours(
    case: Case,
    alone: tuple[list[float], list[float]],
    beside: tuple[list[float], list[float]],
    expected: str,
    told: str,
) -> None:
    control = made("unchanged", SPIKE, HURT)
    runs = [dropped(0, *alone), dropped(1, *beside)]
    verdict = trial("drop-batch").judge(case, [control], runs)
    assert verdict.effect == expected
    assert verdict.why.startswith(told)
    first = trial("drop-batch").judge(case, [control], runs[:1])
    assert first.effect == ("removed" if alone[0] is CALM else "persists")


@pytest.mark.parametrize(
    ("losses", "probes", "expected"),
    [
        ([2.0, 2.01, 1.99, 9.0, 2.0, 2.0], FLAT, "inconclusive"),
        ([2.0, 2.01, 1.99, 9.0, 2.0, 3.0], FLAT, "removed"),
        ([2.0, 2.01, 1.99, 9.0, 2.0, 2.0], HURT, "removed"),
    ],
    ids=["itself", "a-later-step", "the-probes"],
)
def test_a_batch_that_harms_only_itself_is_no_proof(
    case: Case, losses: list[float], probes: list[float], expected: str
) -> None:
    verdict = trial("drop-batch").judge(case, [made("unchanged", losses, probes)], [dropped(0, CALM, FLAT)])
    assert (verdict.effect, verdict.why == HARMLESS) == (expected, expected == "inconclusive")


def test_trials_that_bring_a_control_of_their_own_are_judged_by_it(case: Case) -> None:
    own = made("shift-labels", CALM, [3.0, 3.0, 3.01, 3.0, 3.0])
    better = made("shift-labels", CALM, [3.0, 2.9, 2.6, 2.4, 2.2])
    other = replace(better, spec=replace(better.spec, repeat=1))
    assert trial("shift-labels").judge(case, [], [own, other]).effect == "removed"
    same = replace(own, spec=replace(own.spec, repeat=1))
    assert trial("shift-labels").judge(case, [], [own, same]).effect == "persists"
    assert trial("shift-labels").judge(case, [], [own]).effect == "not-run"
    for load, effect_of in ((1.2, "removed"), (7.5, "persists"), (3.0, "inconclusive")):
        runs = [replace(own, measured={"load": 8.0}), replace(other, measured={"load": load})]
        assert trial("balance-router").judge(case, [], runs).effect == effect_of
    even = [replace(own, measured={"load": 1.2}), replace(other, measured={"load": 1.1})]
    assert trial("balance-router").judge(case, [], even).effect == "inconclusive"
    assert trial("balance-router").judge(case, [], [own, other]).effect == "inconclusive"


def test_what_a_skill_rests_on_is_judged_by_the_same_weights(case: Case) -> None:
    case = case.with_facts({"uniform_loss": 2.5})
    control = made("unchanged", CALM, [0.5, 0.5, 0.5, 0.5, 0.5])
    for first, expected in ((2.4, "removed"), (0.55, "persists"), (1.0, "inconclusive"), (math.inf, "removed")):
        outcome = made("causal-mask", CALM, [first, 2.0, 2.0, 2.0, 2.0])
        assert trial("causal-mask").judge(case, [control], [outcome]).effect == expected, first
    guessing = made("unchanged", CALM, [2.4, 2.4, 2.4, 2.4, 2.4])
    verdict = trial("shuffle-column").judge(case, [guessing], [made("shuffle-column", CALM, FLAT)])
    assert (verdict.effect, "no skill to lose" in verdict.why) == ("inconclusive", True)
    assert trial("shuffle-column").judge(case, [], [made("shuffle-column", CALM, FLAT)]).effect == "inconclusive"


def test_other_inputs_for_the_same_targets_refute_nothing(case: Case) -> None:
    control = made("unchanged", SPIKE, HURT)
    persists = made("synthetic-batch", SPIKE, HURT)
    assert trial("synthetic-batch").judge(case, [control], [persists]).effect == "persists"
    own = replace(persists, notes=(OWN_TARGETS,))
    assert trial("synthetic-batch").judge(case, [control], [own]).effect == "inconclusive"
    removed = made("synthetic-batch", CALM, FLAT, notes=(OWN_TARGETS,))
    assert trial("synthetic-batch").judge(case, [control], [removed]).effect == "removed"


def test_fresh_data_that_leave_the_symptom_say_nothing_if_the_script_makes_its_own(case: Case) -> None:
    control, fresh = made("unchanged", SPIKE, HURT), made("fresh-data", SPIKE, HURT)
    loaded = trial("fresh-data").judge(replace(case, of_loader=True), [control], [fresh])
    assert loaded.effect == "persists"
    assert trial("fresh-data").judge(case, [control], [fresh]).effect == "inconclusive"
    cured = made("fresh-data", CALM, FLAT)
    assert trial("fresh-data").judge(case, [control], [cured]).effect == "removed"


@pytest.mark.parametrize(
    ("measured", "effect"),
    [
        ({"loss_without_bound": 0.2, "least_loss_within_bound": 0.5}, "removed"),
        ({"loss_without_bound": 0.48, "least_loss_within_bound": 0.5}, "inconclusive"),
        ({}, "inconclusive"),
    ],
    ids=["below what the bound allows", "hardly below", "another loss"],
)
def test_a_loss_that_the_bound_does_not_allow(measured: dict[str, float], effect: str) -> None:
    found = reaches_further(
        Verdict("linear-output", "inconclusive"), [replace(made("linear-output", CALM, FLAT), measured=measured)]
    )
    assert found.effect == effect
