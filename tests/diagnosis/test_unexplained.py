"""The other warnings of a run, beside an answer."""

from __future__ import annotations

from dataclasses import replace

from steadytrain.core.model import Symptom
from steadytrain.diagnosis.answer import SIGNATURE, Diagnosis, Evidence, RankedCause
from steadytrain.diagnosis.unexplained import unexplained

SEEN = Evidence(SIGNATURE, "for", "it was seen", "symptom masked-end")
TOP = RankedCause("masked-end", "", "likely", 0.9, (SEEN,), None, (), ())
ANSWER = Diagnosis(
    incident="runs/a/incidents/masked-end-step-000072",
    symptom="masked-end: the end is masked",
    replay="exact",
    replay_note="",
    verdict="masked-end",
    status="likely",
    why="",
    diagnoses=(TOP,),
    trials=(),
    record_next=(),
)


def of(*names: str, severity: str = "warning") -> list[Symptom]:
    return [Symptom(name, severity, 1, 80, f"{name} was seen", tensors=()) for name in names]  # type: ignore[arg-type]


def test_a_rule_that_the_cause_has_no_sign_of_is_named() -> None:
    text = unexplained(of("masked-end", "slow-average"), ANSWER, "runs/a")
    assert text == (
        "masked-end does not explain what the run warns of besides: slow-average "
        "(diagnose runs/a --symptom slow-average)"
    )


def test_many_are_counted() -> None:
    names = ("slow-average", "shared-target", "wrong-best", "cut-sample", "masked-end")
    assert "slow-average, shared-target, wrong-best and 1 more" in unexplained(of(*names), ANSWER, "runs/a")


def test_what_is_explained_a_note_or_a_course_of_the_loss_is_not() -> None:
    assert unexplained(of("masked-end"), ANSWER, "runs/a") == ""
    assert unexplained(of("slow-average", severity="note"), ANSWER, "runs/a") == ""
    assert unexplained(of("divergence", "loss-spike"), ANSWER, "runs/a") == ""
    assert unexplained(of("slow-average"), replace(ANSWER, diagnoses=(), status=None), "runs/a") == ""
