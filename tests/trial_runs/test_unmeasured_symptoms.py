"""A symptom of the first steps that no loss shows, such as saturated attention, is judged by what the run learns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from steadytrain.core.model import Symptom
from steadytrain.experiments.case import Case
from steadytrain.experiments.judging import judge
from steadytrain.experiments.specs import OWN_BATCH, Outcome, Verdict
from steadytrain.trial_runs.verdicts import control_of, own_batches
from trial_cases import CALM, finite_case, made

STUCK, LEARNS, ASTRAY = [2.4, 2.4, 2.4, 2.4, 2.38], [2.4, 2.0, 1.2, 0.6, 0.3], [2.4, 2.5, 2.7, 2.9, 3.0]
LEAPT = [9.0, 7.0, 5.0, 3.0, 2.4]
"""It falls far, from a start that the change itself raised."""


def case_of(signal: str) -> Case:
    symptom = Symptom("attention-logit-growth", "critical", 3, 90, "logits above 100", signals=(signal,))
    return finite_case(symptom=symptom, symptoms=(symptom,), onset=3, begins=(0,))


def ran(name: str, probes: Sequence[float], *, exact: bool | None = None, note: str = "") -> Outcome:
    return made(name, CALM, probes, begin=0, exact=exact, notes=(note,) if note else ())


@pytest.mark.parametrize(
    ("signal", "exact", "shown"),
    [("modules.attention_logit_max", True, True), ("modules.attention_logit_max", False, False), ("loss", True, False)],
)
def test_an_exact_replay_from_the_start_has_a_symptom_that_no_loss_shows(signal: str, exact: bool, shown: bool) -> None:
    control = ran("unchanged", STUCK, exact=exact)
    found = control_of(case_of(signal), [control], [control])
    assert (found.shown, "no loss shows" in found.note) == (shown, shown)


@pytest.mark.parametrize(
    ("probes", "expected"),
    [(LEARNS, "removed"), (STUCK, "persists"), (ASTRAY, "persists"), (LEAPT, "persists")],
    ids=["learns", "stays", "goes astray", "starts higher"],
)
def test_such_a_symptom_persists_where_the_run_learns_as_little(probes: Sequence[float], expected: str) -> None:
    control, one = ran("unchanged", STUCK, exact=True), ran("longer-warmup", probes)
    assert judge("longer-warmup", case_of("modules.attention_logit_max"), [control], [one]).effect == expected
    if expected == "persists":  # of a rise of the loss it says nothing
        assert judge("longer-warmup", case_of("loss"), [control], [one]).effect == "inconclusive"


def test_only_batches_in_their_order_ask_for_another_start() -> None:
    one = ran("fresh-data", STUCK, note=f"its {OWN_BATCH} there")
    turned = replace(one, spec=replace(one.spec, schedule=one.spec.schedule[::-1]))
    verdicts = {"fresh-data": Verdict("fresh-data", "not-run", why=f"its {OWN_BATCH} there")}
    assert own_batches(verdicts, {"fresh-data": [one]})
    assert not own_batches(verdicts, {"fresh-data": [turned]})
    assert not own_batches({"fresh-data": Verdict("fresh-data", "not-run", why="no time")}, {"fresh-data": [one]})
