"""Which other rules a run breaks, that the cause of an answer does not explain: they would be lost behind it."""

from __future__ import annotations

from collections.abc import Iterable

from steadytrain.core.model import Symptom
from steadytrain.diagnosis.answer import Diagnosis
from steadytrain.grouping.catalog import needed_tables

NAMED_MAX = 3


def unexplained(symptoms: Iterable[Symptom], answer: Diagnosis, run: str) -> str:
    """A sentence with the rules above a note that the run ``run`` breaks, if the answer's cause has no sign of them; ""
    if there are none, or no cause."""
    top = next((one for one in answer.diagnoses if one.status in ("confirmed", "likely")), None)
    if top is None:
        return ""
    known = {one.source.removeprefix("symptom ") for one in top.evidence} | {answer.symptom.partition(":")[0]}
    rules = [one.name for one in symptoms if one.severity != "note" and needed_tables(one.name) == {"script"}]
    left = [name for name in dict.fromkeys(rules) if name not in known]
    if not left:
        return ""
    shown = ", ".join(left[:NAMED_MAX]) + (f" and {len(left) - NAMED_MAX} more" if len(left) > NAMED_MAX else "")
    return f"{top.cause} does not explain what the run warns of besides: {shown} (diagnose {run} --symptom {left[0]})"
