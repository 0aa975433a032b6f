"""What a diagnosis of a run without a symptom shows."""

from __future__ import annotations

import io

from rich.console import Console

from steadytrain.diagnosis.answer import UNKNOWN, Diagnosis, RankedCause
from steadytrain.report import diagnosis_shown, text

POSSIBLE = RankedCause("weight-decay-misuse", "Decay.", "possible", 0.4, (), None, (), (), "")
ANSWER = Diagnosis(
    incident="runs/a",
    symptom="",
    replay="exact",
    replay_note="",
    verdict=UNKNOWN,
    status=None,
    why="",
    diagnoses=(POSSIBLE,),
    trials=(),
    record_next=(),
)


def test_a_possible_cause_of_nothing_is_not_shown_first() -> None:
    file = io.StringIO()
    Console(width=100, file=file).print(text.short_diagnosis(diagnosis_shown.part(ANSWER), "diagnose --all"))
    shown = file.getvalue()
    assert shown.startswith("No symptom, so no cause to find")
    assert "weight-decay-misuse" not in shown
    assert "1 other cause: diagnose --all" in shown
