"""A state that was damaged outside of the recorded steps is no proof that the step makes its symptom again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from steadytrain.core.model import Symptom
from steadytrain.experiments.case import Case
from steadytrain.experiments.specs import Outcome
from steadytrain.trial_runs.verdicts import control_of
from trial_cases import finite_case, made

ONSET, EARLY = 90, 80
CALM = [2.0, 2.01, 1.99, 2.0]


def replayed(begin: int, losses: list[float], *, exact: bool) -> Outcome:
    one = made("unchanged", losses, losses)
    return replace(one, spec=replace(one.spec, begin=begin), exact=exact)


@pytest.fixture
def late() -> Outcome:
    """From the state right before the step, as the bundle holds it: it is not finite again."""
    return replayed(ONSET - 1, [float("nan")], exact=True)


def case_of(step: int | None) -> Case:
    symptom = Symptom("nonfinite-loss", "critical", ONSET, ONSET, "the loss is NaN")
    case = finite_case(onset=ONSET, step=ONSET, symptom=symptom, symptoms=(symptom,))
    return case.with_facts({"first_difference": None if step is None else {"step": step}})


def test_a_sound_replay_from_before_speaks_for_damage_in_between(late: Outcome) -> None:
    early = replayed(EARLY, CALM, exact=False)
    control = control_of(case_of(ONSET), [late, early], [late, early])
    assert (control.shown, control.exact, control.early) == (False, False, True)
    assert "from step 80 on, so the state that the run had was damaged" in control.note


def test_without_a_difference_at_the_onset_the_state_is_that_of_the_run(late: Outcome) -> None:
    early = replayed(EARLY, CALM, exact=False)
    for step in (None, 3):  # a run that is not repeatable at all differs from its first steps on
        assert control_of(case_of(step), [late, early], [late, early]).shown
    assert control_of(case_of(ONSET), [late], [late]).shown
    same = replayed(EARLY, [*CALM, float("nan")], exact=True)
    assert control_of(case_of(ONSET), [late, same], [late, same]).shown
