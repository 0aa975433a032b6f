"""Schedules: the same probes at the same places, whatever is left out or replaced."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import builders
from steadytrain.core.incident import Finding, OperandRange
from steadytrain.core.model import Symptom
from steadytrain.diagnosis.opening import with_symptoms
from steadytrain.experiments.bursts import burst_before
from steadytrain.experiments.case import Case
from steadytrain.experiments.case_files import _began, _onset, leading_symptom, open_case
from steadytrain.experiments.specs import NotApplicable, Spec
from steadytrain.experiments.trial_catalog import trial
from steadytrain.storage.tape_files import Recording
from trial_cases import finite_case, window


def planned(name: str, case: Case) -> tuple[Spec, ...]:
    plan = trial(name).plan(case)
    assert not isinstance(plan, NotApplicable), plan.why
    return plan


def only(name: str, case: Case) -> Spec:
    plan = trial(name).plan(case)
    assert not isinstance(plan, NotApplicable), plan
    assert len(plan) == 1
    return plan[0]


def fed(spec: Spec) -> list[int | None]:
    return [entry.step for entry in spec.schedule if entry.role != "probe"]


def test_the_burst_that_an_incomplete_resume_brought_is_the_one_to_remove() -> None:
    lost = Symptom("incomplete-resume", "warning", 620, 700, "3% of the second moments were 0")
    burst = Symptom("update-norm-spike", "warning", 624, 630, "the update was 1000 times as large")
    assert leading_symptom((lost, burst), own=lost) is burst
    assert leading_symptom((lost, replace(burst, first_step=900)), own=lost) is lost
    assert leading_symptom((lost, replace(burst, severity="note")), own=lost) is lost


def test_it_begins_with_the_newest_snapshot_that_leaves_steps_before_the_onset() -> None:
    assert finite_case().begin == 81
    assert finite_case(begins=(1, 33, 88)).begin == 33
    assert finite_case(begins=(1, 33, 87)).begin == 87
    assert finite_case(begins=(89,)).begin == 89
    assert finite_case(begins=(90,)).begin is None
    assert finite_case().earlier_begin == 33


def test_the_ordinary_schedule() -> None:
    case = finite_case()
    spec = only("unchanged", case)
    assert spec.begin == 81
    assert case.steps_after == 27
    assert fed(spec) == [*range(82, 101), *[None] * 17]  # the tape ends with step 100
    probes = [at for at, entry in enumerate(spec.schedule) if entry.role == "probe"]
    assert {spec.schedule[at].step for at in probes} == set(case.probe_steps())
    assert probes[:4] == [0, 1, 2, 3]
    assert probes[-1] == len(spec.schedule) - 1
    assert all(step <= 81 for step in case.probe_steps())
    assert 1 not in case.probe_steps()


def test_the_lead_is_all_steps_while_they_take_little() -> None:
    assert finite_case().lead(81) == "all"
    assert finite_case(step_s=10.0).lead(81) == "one"
    assert finite_case(step_s=10.0).lead(None) == "all"


def test_a_replay_that_is_not_exact_gets_the_whole_lead_if_that_is_not_too_long() -> None:
    dear = finite_case(step_s=0.5)
    assert dear.begin is not None
    assert dear.lead(dear.begin) == "one"
    whole = dear.with_whole_lead()
    assert whole is not None
    assert whole.lead(dear.begin) == "all"
    assert whole.with_whole_lead() is None
    assert finite_case(step_s=10.0).with_whole_lead() is None
    assert finite_case(step_s=0.01).with_whole_lead() is None


def test_trials_have_their_probes_at_the_same_places() -> None:
    case = finite_case()
    control = only("unchanged", case)
    places = [at for at, entry in enumerate(control.schedule) if entry.role == "probe"]
    for name in ("fresh-data", "reorder", "suspect-batch-earlier", "float32", "synthetic-batch"):
        spec = only(name, case)
        assert [at for at, entry in enumerate(spec.schedule) if entry.role == "probe"] == places, name


def test_dropped_batches_are_refused_and_not_skipped() -> None:
    alone, beside = planned("drop-batch", finite_case())
    for spec, refused in ((alone, [90]), (beside, [89, 90, 91])):
        assert fed(spec) == fed(only("unchanged", finite_case()))
        assert [entry.step for entry in spec.schedule if entry.role == "refused"] == refused
    assert (alone.repeat, beside.repeat) == (0, 1)


def test_right_after_the_snapshot_there_is_no_neighbour_to_blame() -> None:
    (alone,) = planned("drop-batch", finite_case(begins=(89,)))
    assert [entry.step for entry in alone.schedule if entry.role == "refused"] == [90]


def test_fresh_data_is_of_before_the_onset() -> None:
    steps = fed(only("fresh-data", finite_case()))
    assert steps[:7] == list(range(82, 89))
    assert all(step is not None and step <= 81 for step in steps[7:])


def test_the_other_half_of_the_two_by_two() -> None:
    steps = fed(only("suspect-batch-earlier", finite_case()))
    assert steps[:4] == [89, 90, 82, 83]
    assert sorted(step for step in steps if step) == list(range(82, 101))


def test_another_order_has_each_step_once() -> None:
    steps = fed(only("reorder", finite_case()))
    assert sorted(step for step in steps if step) == list(range(82, 101))
    assert steps[:19] != list(range(82, 101))


def test_without_a_snapshot_the_script_begins_by_itself() -> None:
    case = finite_case(begins=(), onset=4)
    spec = only("float32", case)
    assert spec.begin is None
    assert fed(spec) == [None] * (4 + case.steps_after)
    why = trial("float32").plan(replace(case, step_s=60.0))
    assert isinstance(why, NotApplicable)
    assert "script's beginning" in why.why


def test_a_gap_in_the_tape_is_not_stepped_over() -> None:
    case = finite_case(taped=((1, 40), (82, 85)))
    assert case.recorded(81)[:6] == [82, 83, 84, 85, None, None]


@pytest.mark.parametrize("name", ["loss-spike", "divergence", "exploding-gradients"])
def test_what_rises_is_judged_by_its_excess(name: str) -> None:
    case = finite_case(symptom=replace(finite_case().symptoms[0], name=name))
    assert case.aim == "excess"


def test_aims() -> None:
    symptom = finite_case().symptoms[0]
    assert finite_case(symptom=replace(symptom, name="nonfinite-loss")).aim == "finite"
    assert finite_case(symptom=replace(symptom, name="no-learning")).aim == "progress"
    assert finite_case(symptom=replace(symptom, name="lost-updates")).aim == "progress"
    assert finite_case(symptom=None).aim == "excess"


@pytest.mark.parametrize(
    ("at", "leading"),
    [(620, "loss-spike"), (500, "dead-units"), (660, "dead-units")],
    ids=["right-before", "long-before", "after"],
)
def test_what_burst_leads_before_the_standstill_that_it_leaves(at: int, leading: str) -> None:
    burst, still = (Symptom("loss-spike", "warning", at, at, ""), Symptom("dead-units", "critical", 640, 690, ""))
    found = leading_symptom((still, burst))
    assert found is not None
    assert found.name == leading


def test_a_script_that_guards_itself_never_meets_its_bad_batch_in_a_trial_without_it() -> None:
    case = finite_case(onset=92, taped=((1, 92),), guarded=True, of_loader=True)
    alone, beside = planned("drop-batch", case)
    assert fed(alone)[:11] == [*range(82, 92), 82]
    assert fed(beside)[:11] == [*range(82, 92), 82]
    assert [entry.step for entry in alone.schedule if entry.role == "refused"] == [82]


def test_without_a_loader_probes_come_before_the_batch_at_which_a_guarded_script_ends() -> None:
    case = finite_case(onset=92, taped=((1, 92),), guarded=True)
    alone, _ = planned("drop-batch", case)
    at = next(at for at, entry in enumerate(alone.schedule) if entry.role == "refused")
    assert alone.schedule[at].step == 92
    assert {entry.role for entry in alone.schedule[at - len(case.probe_steps()) : at]} == {"probe"}


def test_the_symptom_of_the_incident_leads_those_that_are_as_grave() -> None:
    large = Symptom("update-norm-spike", "warning", 1, 96, "large updates", ("tensors.update_norm",))
    jumped = Symptom("learning-rate-jump", "warning", 51, 128, "the rate jumped", ("learning_rate",))
    grave = Symptom("divergence", "critical", 60, 128, "the loss rose", ("loss",))
    assert leading_symptom((jumped, large)) is large
    assert leading_symptom((jumped, large), own=jumped) is jumped
    assert leading_symptom((jumped, large, grave), own=jumped) is grave


def test_nothing_before_it_leads_to_a_jump_of_the_rate() -> None:
    large = Symptom("update-norm-spike", "warning", 1, 96, "large updates", ("tensors.update_norm",))
    jumped = Symptom("learning-rate-jump", "warning", 51, 128, "the rate jumped", ("learning_rate",))
    spiked = Symptom("loss-spike", "warning", 53, 53, "the loss spiked", ("loss",))
    assert _onset(jumped, (jumped, large)) == 51
    assert _onset(spiked, (spiked, large)) == 1
    assert _onset(spiked, (spiked, large, jumped)) == 51


@pytest.mark.parametrize(
    ("loss", "first", "onset"),
    [(9.0, 60, 90), (2.03, 60, 60), (9.0, 84, 84)],
    ids=["a leap", "a slow rise", "right before it"],
)
def test_what_is_measured_every_few_steps_does_not_date_a_leap(loss: float, first: int, onset: int) -> None:
    seen = window([2.0 + 0.01 * (-1) ** step for step in range(89)] + [loss] * 11)
    leapt = Symptom("lost-progress", "warning", 90, 100, "the loss rose", ("loss",))
    lag = Symptom("second-moment-lag", "warning", first, 100, "lags", ("tensors.gradient_to_second_moment",))
    assert _began(leapt, (leapt, lag), seen, Recording(Path(), (), ())) == onset


@pytest.mark.parametrize(
    ("first", "at", "onset"),
    [(77, 90, 90), (84, 90, 84), (60, 90, 60), (77, 0, 77)],
    ids=["after it", "it may come from it", "long after it", "the loss stays"],
)
def test_a_leap_that_follows_what_leads_dates_it(first: int, at: int, onset: int) -> None:
    losses = [2.0 + 0.01 * (-1) ** step for step in range(100)]
    seen = window(losses[: at - 1] + [9.0] * 11 if at else losses)
    leapt = Symptom("lost-progress", "warning", 90, 100, "the loss rose", ("loss",))
    lag = Symptom("second-moment-lag", "warning", first, first, "lags", ("tensors.gradient_to_second_moment",))
    assert _began(lag, (lag, leapt), seen, Recording(Path(), (), ())) == onset
    case = replace(finite_case(symptom=lag, symptoms=(lag,)), window=seen, onset=first, step=100)
    assert with_symptoms(case, (leapt,)).onset == onset


def test_what_is_measured_every_few_steps_does_not_date_before_an_act() -> None:
    jumped = Symptom("learning-rate-jump", "warning", 620, 700, "the rate jumped", ("learning_rate", "loss"))
    lag = Symptom("second-moment-lag", "warning", 600, 688, "lags", ("tensors.gradient_to_second_moment",))
    sharp = Symptom("attention-entropy-collapse", "critical", 640, 688, "sharp", ("modules.attention_entropy",))
    drifts = Symptom("divergence", "warning", 610, 700, "the loss drifts up", ("loss",))
    assert _onset(sharp, (sharp, lag, jumped)) == 620
    assert _onset(lag, (lag, jumped)) == 620
    assert _onset(sharp, (sharp, lag)) == 600
    assert _onset(sharp, (sharp, lag, replace(jumped, severity="note"))) == 600
    assert _onset(sharp, (sharp, lag, jumped, drifts)) == 600
    assert _onset(lag, (lag, replace(jumped, first_step=690))) == 600


CALM = [2.0 + 0.01 * (-1) ** step for step in range(80)]


@pytest.mark.parametrize(
    ("losses", "onset"),
    [
        ([*CALM, 5e3, 900.0, 40.0, 1e6], 81),
        ([*CALM, *[5e3] * 30], 81),
        ([*CALM, 3e3, 2.1, 2.0, 2.0], None),
        ([*CALM, 4.0, 9.0, 60.0, 3e4], None),
        (CALM, None),
        ([5e3] * 40, None),
    ],
    ids=["a burst that goes on", "a long one", "one that is over", "a slow growth", "calm", "from the start"],
)
def test_a_burst_that_ends_in_nan_begins_where_the_loss_jumped(losses: list[float], onset: int | None) -> None:
    assert burst_before(window([*losses, float("nan")]).slice(0, len(losses) + 1), len(losses) + 1) == onset


@pytest.mark.parametrize(("divisor", "onset"), [({"text": "0"}, 85), ({"zeros": 1, "smallest": 0.0}, 81)])
def test_a_division_by_a_number_of_the_script_comes_from_no_burst(
    divisor: dict[str, Any], onset: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Recording, "starts", lambda recording: [70])
    seen = window([*CALM, 5e3, 900.0, 40.0, 1e6, float("nan")]).slice(0, 85)
    lost = Symptom("nonfinite-loss", "critical", 85, 85, "the loss is NaN", ("loss",))
    operands = (OperandRange("self", (), zeros=1, smallest=0.0, largest=0.0), OperandRange("other", **divisor))
    finding = Finding(replace(builders.located(), inputs=operands), "found in the re-run")
    assert _began(lost, (lost,), seen, Recording(Path(), (), ()), finding) == onset


def test_a_batch_is_left_out_to_beyond_the_step_that_was_not_finite() -> None:
    """Four steps after the onset a value is not finite: a schedule that ends before shows nothing."""
    bad = Symptom("nonfinite-loss", "critical", 94, 94, "NaN", ("loss",))
    case = finite_case(symptom=bad, symptoms=(bad,), onset=90, step=94)
    assert max(step for spec in planned("drop-batch", case) for step in fed(spec) if step is not None) >= 96


def test_what_the_script_was_seen_to_do_after_an_incident_is_a_sign_and_no_symptom_to_remove(tmp_path: Path) -> None:
    act = Symptom("uncopied-state", "warning", 430, 430, "loaded a state of its own tensors")
    later = Symptom("loss-spike", "critical", 425, 430, "a spike")
    note = Symptom("unsaved-state", "note", 430, 430, "nothing was saved")
    run = builders.bad_run(tmp_path / "run", symptoms=[builders.symptom(), act, later, note])
    (bundle,) = (run / "incidents").iterdir()
    case = open_case(bundle)
    assert [one.name for one in case.symptoms] == [builders.symptom().name, "uncopied-state"]
    assert case.symptom is not None
    assert case.symptom.name == builders.symptom().name
    moved = tmp_path / "bundle"
    bundle.rename(moved)
    assert [one.name for one in open_case(moved).symptoms] == [builders.symptom().name]


def test_a_step_that_is_not_whole_on_the_tape_is_not_replayed() -> None:
    case = replace(finite_case(), not_whole="more than 256 calls of the model")
    assert finite_case().replayable is None
    assert case.replayable == "its steps are not whole on the tape (more than 256 calls of the model)"
