"""The answer is read at the last place of each row, which is padding."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, HINT, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import ruled_out, seen, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class ReadPadding(Cause):
    """The answer is read at the last place of each row, which is padding.

    Means:
        `outputs[:, -1]` of a recurrent layer is its state after all places of the batch. In rows that are padded on the
        right that is the state after the padding, which has little left of the row. Long rows are learned, short ones
        are not.

    Causes:
        - `outputs[:, -1]` of rows of different lengths
        - a packed sequence that is unpacked and then read at its last place, where short rows hold zeros

    Next:
        1. Read each row at its own length, or take the last state of a packed sequence.
        2. Compare the accuracy of short rows with that of long ones.
    """

    axis = "model"
    base_rate = 1.0
    rivals = ("learning-rate-too-low", "padding-in-loss")
    expects = like("script")
    spared = ("drop-batch", "float32")
    interventions = (
        Intervention(
            "read-at-length",
            4,
            "read each row at its own last place",
            code="last = outputs[torch.arange(len(lengths)), lengths - 1]",
        ),
    )
    grade = "B"
    source = "the documentation of pack_padded_sequence"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *symptom(case, CERTAIN, "read-padding", invariant=True),
                *symptom(case, HINT, "no-learning", "plateau"),
                *ruled_out(seen(case, "read-padding") is None, "no answer is read at a place of padding"),
            )
        )
