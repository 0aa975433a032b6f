"""Symptoms that somebody sees, and trials from the start of the script that judge them by the training loss."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import builders
from steadytrain.core.errors import UsageError
from steadytrain.core.model import Symptom
from steadytrain.experiments.case import PROGRESS_STEPS, Case
from steadytrain.experiments.case_files import open_case
from steadytrain.experiments.complaints import complaint
from steadytrain.experiments.judging import judge, shows
from steadytrain.experiments.specs import NotApplicable, Outcome
from steadytrain.experiments.trial_catalog import trial
from trial_cases import finite_case, made, window

SLOW = [2.3 - 0.3 * step / 239 + 0.02 * (-1) ** step for step in range(240)]
MENDED = [SLOW[0], *(2.3 * 0.98**step for step in range(1, 240))]


@pytest.fixture
def case() -> Case:
    symptom = complaint("no-learning", window(SLOW), None)
    return finite_case(
        symptom=symptom, symptoms=(symptom,), onset=1, step=1, window=window(SLOW), begins=(), taped=(), step_s=0.01
    )


def whole(name: str, losses: list[float]) -> Outcome:
    outcome = made(name, losses, [], begin=0)
    return replace(outcome, spec=replace(outcome.spec, begin=None))


def effect(case: Case, losses: list[float], control: list[float] = SLOW) -> str:
    return judge("longer-warmup", case, [whole("unchanged", control)], [whole("longer-warmup", losses)]).effect


def test_a_complaint_is_a_warning_from_the_first_step_on() -> None:
    symptom = complaint("no-learning", window(SLOW), None)
    assert (symptom.severity, symptom.first_step, symptom.last_step) == ("warning", 1, 240)
    assert complaint("loss-spike", window(SLOW), 90).first_step == 90


@pytest.mark.parametrize(
    ("name", "onset", "says"),
    [
        ("no-learnin", None, "did you mean no-learning"),
        ("zzz", None, "steadytrain explain"),
        ("nonfinite-loss", None, "no value of this run was NaN or Inf"),
        ("loss-spike", None, "say with --onset STEP"),
        ("no-learning", 241, "steps 1 to 240"),
    ],
)
def test_a_complaint_that_cannot_be_tried_says_why(name: str, onset: int | None, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        complaint(name, window(SLOW), onset)


def test_a_run_without_a_step_is_no_run() -> None:
    with pytest.raises(UsageError, match="no step"):
        complaint("no-learning", window(SLOW).slice(0, 0), None)


def test_trials_go_as_far_as_the_run_did_in_the_time_there_is(case: Case) -> None:
    plan = trial("learning-rate-third").plan(case)
    assert not isinstance(plan, NotApplicable)
    assert (plan[0].begin, len(plan[0].schedule)) == (None, 240)
    slow = replace(case, step_s=0.1)
    assert slow.steps_after == 200
    assert replace(case, step_s=10.0).steps_after == PROGRESS_STEPS
    (ramp,) = [one.changes[0] for one in trial("longer-warmup").plan(case)]  # type: ignore[union-attr]
    assert ramp.values["steps"] == case.steps_after // 2


def test_the_control_shows_a_loss_that_does_not_fall_far(case: Case) -> None:
    assert shows(case, whole("unchanged", SLOW), [])[0]


def test_progress_without_probes_is_judged_by_the_last_losses(case: Case) -> None:
    assert effect(case, MENDED) == "removed"
    assert effect(case, SLOW) == "persists"
    assert effect(case, [SLOW[0], *(loss - 0.2 for loss in SLOW[1:])]) == "inconclusive"
    assert effect(case, [SLOW[0], *(loss + 1.0 for loss in SLOW[1:])]) == "worse"
    assert effect(case, [SLOW[0], *(loss - 0.001 for loss in SLOW[1:])]) == "persists"


def test_a_run_that_learned_half_is_cured_by_half_of_its_loss(case: Case) -> None:
    half = [2.3 - 1.5 * step / 239 for step in range(240)]
    better = [half[0], *(loss * 0.3 for loss in half[1:])]
    assert effect(case, better, control=half) == "removed"


def test_what_begins_with_another_loss_does_not_compare(case: Case) -> None:
    assert effect(case, [2.0, *MENDED[1:]]) == "inconclusive"
    assert effect(case, MENDED[:200]) == "inconclusive"


def test_another_symptom_of_the_run_is_not_asked_for() -> None:
    assert isinstance(complaint("plateau", window(SLOW), 100), Symptom)


def test_steps_of_another_optimizer_are_not_taken_for_those_of_the_first(case: Case) -> None:
    symptom = replace(finite_case().symptoms[0], stream="optimizer-2")
    for later in (finite_case(symptom=symptom), finite_case(symptom=symptom, begins=(), taped=())):
        for name in ("unchanged", "learning-rate-third", "longer-warmup"):
            plan = trial(name).plan(later)
            assert isinstance(plan, NotApplicable)
            assert "the steps of optimizer-2" in plan.why


def test_a_later_training_is_not_tried_from_the_start_of_the_script() -> None:
    symptom = replace(finite_case().symptoms[0], stream="optimizer-2")
    later = finite_case(symptom=symptom, stream="optimizer-2", later=True, begins=(), taped=())
    for name in ("unchanged", "longer-warmup"):
        plan = trial(name).plan(later)
        assert isinstance(plan, NotApplicable)
        assert plan.why == "the symptom is in a later training of the script, and the script begins with another one"
    in_turns = replace(later, later=False)
    assert not isinstance(trial("unchanged").plan(in_turns), NotApplicable)


@pytest.mark.parametrize(("name", "begin"), [("incomplete-resume", None), ("zero-learning-rate", 1)])
def test_what_the_script_did_before_the_onset_is_not_tried_after_it(name: str, begin: int | None) -> None:
    symptom = Symptom(name, "warning", 1, 1, "said", signals=("script.value",))
    assert finite_case(symptom=symptom, symptoms=(symptom,), onset=1, begins=(1, 40)).begin == begin


def test_a_note_that_somebody_asks_about_counts_as_a_warning_from_the_start(tmp_path: Path) -> None:
    noted = Symptom("no-learning", "note", 8, 900, "the loss stays", signals=("loss",))
    path = builders.quiet_run(tmp_path / "run", symptoms=[noted])
    case = open_case(path, symptom="no-learning")
    assert case.symptom is not None
    assert (case.symptom.severity, case.onset, case.taped, case.begins) == ("warning", 1, (), ())
    assert open_case(path).symptom == noted
