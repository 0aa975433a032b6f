"""Removed means back to health: not smaller, not later. Traps first, each beside a twin that is a cure."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from steadytrain.experiments.case import Case
from steadytrain.experiments.health import range_before
from steadytrain.experiments.judging import WEAKENED, judge
from steadytrain.experiments.specs import Entry, Outcome, ProbeSeen, Spec
from steadytrain.experiments.trial_catalog import trial
from trial_cases import CALM, FLAT, HURT, SPIKE, finite_case, made, window

BEGIN = 86


@pytest.fixture
def case() -> Case:
    return finite_case(begins=(BEGIN,))


def from_the_start() -> Case:
    """A regression whose steps overshoot from the first one on: there is no "before"."""
    losses = [1.0 * 86.0**step for step in range(12)]
    symptom = replace(finite_case().symptoms[0], name="divergence", first_step=3)
    return finite_case(symptom=symptom, symptoms=(symptom,), onset=3, step=6, window=window(losses), begins=(0,))


def at_start(name: str, losses: list[float], *, left_out: int | None = None) -> Outcome:
    """Steps from 1 on; probes as high as the steps."""
    outcome = made(name, losses, losses, begin=0)
    if left_out is None:
        return outcome
    schedule = list(outcome.spec.schedule)
    place = next(at for at, entry in enumerate(schedule) if entry.step == left_out)
    schedule[place] = Entry(left_out, "refused")
    steps = tuple(one for one in outcome.steps if one.entry != place)
    return replace(outcome, spec=replace(outcome.spec, schedule=tuple(schedule)), steps=steps)


def test_a_step_of_delay_is_no_cure_for_steps_that_overshoot_from_the_start() -> None:
    """Leaving out one batch makes 2.6e22 into 3e20."""
    case = from_the_start()
    assert range_before(case) is None
    grows = [86.0**step for step in range(12)]
    control = at_start("unchanged", grows)
    dropped = at_start("drop-batch", [*grows[:2], *grows[1:-1]], left_out=3)
    verdict = judge("drop-batch", case, [control], [dropped])
    assert verdict.effect in ("inconclusive", "persists", "delayed")
    less = judge("drop-batch", case, [control], [at_start("drop-batch", [one**0.9 for one in grows])])
    assert (less.effect, less.numbers[WEAKENED]) == ("inconclusive", 1.0)
    assert less.why.startswith("weakened, not removed: ")


@pytest.mark.parametrize(
    "losses", [[1.0, 0.9, 0.8, 0.6, 0.5, 0.4, 0.3, 0.3], [1.0, 1.05, 0.98, 1.0, 1.02, 1.0, 1.0, 1.04]]
)
def test_a_start_whose_loss_falls_or_stays_near_it_is_healthy(losses: list[float]) -> None:
    case = from_the_start()
    control = at_start("unchanged", [86.0**step for step in range(8)])
    assert judge("learning-rate-tenth", case, [control], [at_start("learning-rate-tenth", losses)]).effect == "removed"


def test_a_rise_far_above_the_range_before_the_onset_is_no_cure(case: Case) -> None:
    """A third of the rate ended at a loss 2.96e8 above the baseline, and counted as a cure."""
    control = made("unchanged", [*CALM[:3], 1e12, 1e14, 1e15], [2.0, 2.0, 2.01, 1e14, 1e15])
    third = made("learning-rate-third", [*CALM[:3], 1e4, 1e7, 3e8], [2.0, 2.0, 2.01, 1e7, 2.96e8])
    verdict = judge("learning-rate-third", case, [control], [third], rate_only=True)
    assert (verdict.effect, verdict.numbers[WEAKENED]) == ("inconclusive", 1.0)


def test_the_same_symptom_later_is_delayed(case: Case) -> None:
    control = made("unchanged", [*CALM[:3], 9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0], [2.0, 2.0, 2.0, 9.0, 9.0, 9.0])
    later = made("clip", [*CALM, 2.0, 9.0, 9.0, 9.0], [2.0, 2.0, 2.0, 2.0, 2.0, 3.5])
    verdict = judge("clip", case, [control], [later])
    assert (verdict.effect, verdict.why.rpartition("; ")[2]) == ("delayed", "it comes 4 steps later")


@pytest.mark.parametrize(("norm", "effect"), [(0.6, "removed"), (1.9, "removed"), (40.0, "inconclusive")])
def test_a_gradient_outside_of_the_range_is_not_healthy(case: Case, norm: float, effect: str) -> None:
    control = made("unchanged", SPIKE, HURT)
    quiet = made("beta2-lower", CALM, FLAT)
    steps = tuple(replace(one, gradient_norm=norm) for one in quiet.steps)
    assert judge("beta2-lower", case, [control], [replace(quiet, steps=steps)]).effect == effect


def test_a_finite_value_that_destroys_the_run_is_no_cure(case: Case) -> None:
    """1/0 clamped to a million is finite, and its gradient ends the run all the same."""
    named = replace(case, symptom=replace(case.symptoms[0], name="nonfinite-loss"))
    control = made("unchanged", [2.0, 2.0, 2.0, math.nan], FLAT)
    clamped = made("safe-operation", [2.0, 2.0, 2.0, 13.8, 2.0, 2.0], FLAT)  # a row may keep its own high loss
    assert judge("safe-operation", named, [control], [clamped]).effect == "removed"
    ruined = made("safe-operation", [2.0, 2.0, 2.0, 1e6, 90.0, 80.0], [2.0, 2.0, 2.0, 85.0, 80.0])
    assert judge("safe-operation", named, [control], [ruined]).effect == "inconclusive"


def test_weights_drawn_anew_are_compared_with_their_own_start(case: Case) -> None:
    """They begin at the loss of a guess, far above the run's range."""
    control = made("unchanged", [*CALM[:3], 90.0, 90.0, 90.0], [2.0, 2.0, 2.01, 90.0, 90.0])
    fresh = made("reinitialize", [4.1, 4.0, 3.9, 3.8, 3.7, 3.6], [4.1, 4.0, 3.9, 3.8, 3.7])
    assert trial("reinitialize").judge(case, [control], [fresh]).effect == "removed"
    assert judge("clip", case, [control], [fresh]).effect == "inconclusive"


@pytest.mark.parametrize(("at", "effect"), [(0, "persists"), (4, "persists"), (None, "removed")])
def test_another_order_removes_nothing_where_the_batch_only_moved(case: Case, at: int | None, effect: str) -> None:
    """The hard batch comes before or after the judged step; its loss counts wherever it comes."""
    control = made("unchanged", SPIKE, FLAT)
    losses = [9.0 if place == at else loss for place, loss in enumerate(CALM)]
    assert trial("reorder").judge(case, [control], [made("reorder", losses, FLAT)]).effect == effect


@pytest.mark.parametrize("begin", [86, 50])
def test_the_verdict_does_not_depend_on_how_far_back_the_snapshot_lies(begin: int) -> None:
    """What the run learned since the snapshot is no noise, and no reserve that a rise could use up."""
    case = finite_case(begins=(begin,))
    learned = [4.0, 3.0, 2.4] if begin == 50 else [2.0, 2.0, 2.0]
    before = [2.0] * (89 - begin)

    def outcome(name: str, after: list[float], probe: float) -> Outcome:
        plain = made(name, [*before, *after], [0.0], begin=begin)
        first = [ProbeSeen(place, 5, loss) for place, loss in zip((0, 1, 2), learned, strict=True)]
        last = plain.probes[-1].entry
        return replace(plain, probes=(*first, ProbeSeen(last, 5, probe)), spec=_probed(plain.spec))

    control = outcome("unchanged", [9.0, 4.0, 3.4, 3.4], 3.4)
    assert judge("drop-batch", case, [control], [outcome("drop-batch", [2.0] * 4, 2.4)]).effect == (
        "removed" if begin == 50 else "inconclusive"
    )
    verdict = judge("clip", case, [control], [outcome("clip", [9.0, 4.0, 3.4, 3.4], 3.4)])
    assert (verdict.effect, verdict.why.split(" by ")[0]) == ("persists", "loss on fixed batches rises")


def _probed(spec: Spec) -> Spec:
    """The first three entries as probes."""
    entries = [replace(entry, role="probe") if place < 3 else entry for place, entry in enumerate(spec.schedule)]
    return replace(spec, schedule=tuple(entries))


def nonfinite_after(losses: list[float]) -> Case:
    """A value that is not finite after ``losses``, in the first steps of a script."""
    symptom = replace(finite_case().symptoms[0], name="nonfinite-loss", severity="critical", first_step=len(losses) + 1)
    return finite_case(
        symptom=symptom,
        symptoms=(symptom,),
        onset=len(losses) + 1,
        step=len(losses) + 1,
        window=window([*losses, math.nan]),
        begins=(0,),
        taped=((1, len(losses) + 1),),
    )


@pytest.mark.parametrize("count", [6, 12])
def test_a_loss_that_exploded_from_the_start_is_no_health_to_come_back_to(count: int) -> None:
    """Six steps rise to 1e10; finite, but at 420, is no cure. A loss that falls from its start is one."""
    before = [4.9 * 50.0**step for step in range(count)]
    case = nonfinite_after(before)
    assert range_before(case) is None
    control = at_start("unchanged", [*before, math.inf])
    high = [*(4.9 + 60.0 * step for step in range(8)), *([420.0] * 24)]
    assert judge("clip-usual", case, [control], [at_start("clip-usual", high)]).effect != "removed"
    low = [4.9 - 0.05 * step for step in range(32)]
    assert judge("clip-usual", case, [control], [at_start("clip-usual", low)]).effect == "removed"
