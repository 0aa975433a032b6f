"""The answer after a patch was run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from steadytrain.diagnosis.answer import Diagnosis, PatchTried, RankedCause, Status
from steadytrain.diagnosis.patched_answer import with_patch


def ranked(cause: str, status: Status, confidence: float) -> RankedCause:
    return RankedCause(cause, f"What {cause} is.", status, confidence, (), None, (), ())


def answer(status: Status = "likely") -> Diagnosis:
    causes = (ranked("nonfinite-input", status, 0.7), ranked("singular-operation", "possible", 0.3))
    return Diagnosis("a/step-5", "NaN", "exact", "", "nonfinite-input", status, "It is the data.", causes, ())


def patch(effect: str, cause: str = "singular-operation") -> PatchTried:
    return PatchTried(cause, "bound the denominator", "train.py", "", effect, "", "nan", 2.0, 20)


def test_the_cause_of_a_patch_that_removed_the_symptom_comes_first() -> None:
    found = with_patch(answer(), patch("removed"))
    assert (found.verdict, found.status) == ("singular-operation", "likely")
    assert [(one.cause, one.status) for one in found.diagnoses] == [
        ("singular-operation", "likely"),
        ("nonfinite-input", "possible"),
    ]
    assert found.why == "What singular-operation is. A patch for it removed the symptom: bound the denominator."
    assert found.axis is not None
    assert found.axis.name == "loss"
    assert found.patch == patch("removed")


@pytest.mark.parametrize(
    ("known", "tried"),
    [
        (answer(), patch("persists")),
        (answer("confirmed"), patch("removed")),
        (answer(), patch("removed", "nonfinite-input")),
        (answer(), patch("removed", "bad-batch")),
    ],
    ids=["it did not help", "the other cause is confirmed", "it was first", "it is no cause of the answer"],
)
def test_else_the_answer_stays(known: Diagnosis, tried: PatchTried) -> None:
    assert with_patch(known, tried) == replace(known, patch=tried)
