"""Ids in a 16-bit float."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, HINT, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import ruled_out, seen, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class RoundedIds(Cause):
    """Ids are held in float16 or bfloat16, which rounds them to their neighbours: several share an embedding row.

    Means:
        A 16-bit float holds whole numbers exactly up to 2,048 (float16) or 256 (bfloat16). Larger ids are rounded to a
        multiple of 2, 4 or 8. The model learns one row for several users, items or tokens, and never sees the others.

    Causes:
        - a table with ids and values in one low-precision tensor or file
        - `.half()` or `.to(bfloat16)` on a whole batch

    Next:
        1. Keep ids as integers (int64), and cast only the values.
        2. Read the data again: what was rounded cannot be restored.
    """

    axis = "precision"
    base_rate = 1.0
    rivals = ("learning-rate-too-low", "embedding-gradient-spike")
    expects = like("script")
    spared = ("drop-batch", "float32")
    interventions = (
        Intervention(
            "integer-ids",
            3,
            "keep ids as integers from the file to the embedding",
            code="ids = table[:, :2].long(); values = table[:, 2:].half()  # of a table that holds ids exactly",
        ),
    )
    grade = "A"
    source = "IEEE 754: the significands of binary16 and bfloat16"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *symptom(case, CERTAIN, "rounded-ids", invariant=True),
                *symptom(case, HINT, "no-learning", "plateau"),
                *ruled_out(seen(case, "rounded-ids") is None, "the ids that are looked up are not rounded"),
            )
        )
