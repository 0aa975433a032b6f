"""Rows that get the input of another row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, HINT, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import Signs, fact, ruled_out, seen, symptom, when
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class SharedInputs(Cause):
    """Several rows get one and the same input: that of another row, with their own target.

    Means:
        A cache, a buffer or an index returns the input of another row, so the same input comes with many targets. No
        model can tell them apart: it learns how frequent each target is, and what little is left of the right pairs.

    Causes:
        - a cache of features whose key several samples share: a number within a session, a name without its folder, a
          time rounded to a second
        - a view of a buffer or of a memory that is written again, kept without a copy
        - an index that wraps around or is rounded (integers in a narrow type), for the inputs only
        - a join on a column whose values repeat

    Next:
        1. Take two rows with the same input, and print what they were read from.
        2. Use a key that is different for each sample, or copy the buffer: `rows.append(buffer.copy())`.
        3. Assert once that there are as many different inputs as rows.
    """

    axis = "data"
    base_rate = 2.0
    rivals = ("label-misalignment", "overwritten-rows", "learning-rate-too-low", "bad-initialization")
    expects = like("script")
    spared = ("drop-batch", "float32")
    interventions = (
        Intervention(
            "full-cache-key",
            4,
            "use a key that is different for each sample, and copy what a buffer holds",
            code="key = (sample.file, sample.number)  # the whole identity; rows.append(buffer.copy())",
        ),
    )
    grade = "B"
    source = "two samples of many numbers do not come out equal by chance"

    def signature(self, case: Case) -> Signature:
        told, repeated = seen(case, "contradictory-targets"), _repeated(case)
        return Signature(
            (
                *symptom(case, CERTAIN, "contradictory-targets", invariant=True),
                *repeated,
                *symptom(case, HINT, "no-learning", "plateau"),
                *ruled_out(told is None and not repeated, "no input was seen to come with several targets"),
            )
        )


def _repeated(case: Case) -> Signs:
    """A sign if whole batches of inputs come again and again, while their targets go on."""
    found = fact(case, "inputs_repeated")
    if not isinstance(found, Mapping):
        return ()
    text = (
        f"{found['batches']} of {found['of']} batches have the inputs of the batch before, in its order, and other "
        "targets: all batches lie in one memory that is written again and again"
    )
    return when(True, CERTAIN, text, "fact inputs_repeated", invariant=True, batches=float(found["batches"]))
