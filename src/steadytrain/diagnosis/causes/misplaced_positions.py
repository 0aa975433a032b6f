"""Positions are counted along the batch, so all places of a row have the same one."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, HINT, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import ruled_out, seen, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class MisplacedPositions(Cause):
    """Positions are counted along the batch, so all places of a row have the same one.

    Means:
        The table of positions is cut by the first axis, which is the batch where layers are made with
        `batch_first=True`. Each row is encoded by its place in the batch, and its places are not told apart: the model
        reads a bag of words.

    Causes:
        - `x + self.pe[: x.size(0)]`, written for [places, rows, features]

    Next:
        1. Cut the table by the axis of the places.
        2. Shuffle the places of a row: the output must change.
    """

    axis = "model"
    base_rate = 1.0
    rivals = ("learning-rate-too-low", "low-precision-positions")
    expects = like("script")
    spared = ("drop-batch", "float32")
    interventions = (
        Intervention(
            "count-places",
            4,
            "cut the table of positions by the axis of the places",
            code="x = x + self.pe[:, : x.size(1)]",
        ),
    )
    grade = "B"
    source = "the tutorial of torch on nn.Transformer, whose positions are for places first"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *symptom(case, CERTAIN, "row-positions", invariant=True),
                *symptom(case, HINT, "no-learning", "plateau"),
                *ruled_out(
                    seen(case, "row-positions") is None, "no table of positions is cut by the rows of the batch"
                ),
            )
        )
