"""The answer after a patch was run: the cause whose patch removed the symptom comes first."""

from __future__ import annotations

from dataclasses import replace

from steadytrain.diagnosis.answer import Axis, Diagnosis, PatchTried
from steadytrain.diagnosis.axis import WHERE, axis_of
from steadytrain.diagnosis.cause_catalog import causes


def with_patch(answer: Diagnosis, patch: PatchTried) -> Diagnosis:
    """``answer`` with what ``patch`` showed. A confirmed cause stays first: other patches may hide its symptom."""
    kept = replace(answer, patch=patch)
    own = next((one for one in answer.diagnoses if one.cause == patch.cause), None)
    if patch.effect != "removed" or own is None or answer.status == "confirmed":
        return kept
    if answer.verdict == own.cause and answer.diagnoses[0] is own:
        return kept
    first = replace(own, status="likely", why=f"a patch for it removed the symptom: {patch.what}")
    others = (
        replace(one, status="possible") if one.status == "likely" else one for one in answer.diagnoses if one is not own
    )
    cause = causes().get(own.cause)
    name = axis_of(cause) if cause is not None else ""
    where = Axis(name, f"{own.cause} is a fault {WHERE[name]}: its patch removed the symptom", ()) if name else None
    return replace(
        kept,
        verdict=own.cause,
        status="likely",
        why=f"{own.summary} A patch for it removed the symptom: {patch.what}.",
        diagnoses=(first, *others),
        axis=where,
    )
