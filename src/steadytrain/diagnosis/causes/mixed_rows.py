"""Rows of a batch that are computed together."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, HINT, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import ruled_out, seen, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class MixedRows(Cause):
    """The model mixes the rows of the batch: batch and sequence axes are exchanged, as without `batch_first=True`.

    Means:
        Layers of torch read [places, rows, features] by default. Given [rows, places, features], they attend, or step,
        from one sample of the batch to the next and never along the places of one sample. No shape is wrong, so nothing
        is raised.

    Causes:
        - `batch_first=True` is missing in `LSTM`, `GRU`, `MultiheadAttention` or `TransformerEncoderLayer`
        - a transpose that is missing, or made twice

    Next:
        1. Pass `batch_first=True`, and nothing else has to change.
        2. Change one row of a batch, and compare the outputs of the others.
    """

    axis = "model"
    base_rate = 3.0
    rivals = ("learning-rate-too-low", "label-leakage", "normalization-misuse")
    expects = like("script", removed=("batch-first",))
    confirming = ("batch-first",)
    spared = ("drop-batch", "float32")
    interventions = (
        Intervention(
            "batch-first",
            4,
            "tell the layer that the batch comes first",
            "batch-first",
            code="nn.TransformerEncoderLayer(width, heads, batch_first=True)",
        ),
    )
    grade = "A"
    source = "the documentation of MultiheadAttention (batch_first is False by default)"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *symptom(case, CERTAIN, "mixed-rows", invariant=True),
                *symptom(case, HINT, "no-learning", "plateau"),
                *ruled_out(
                    seen(case, "mixed-rows") is None,
                    "neither attention nor a recurrent layer goes over the rows of the batch",
                ),
            )
        )
