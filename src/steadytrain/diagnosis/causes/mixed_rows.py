"""Rows of a batch that are computed together."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, HINT, Cause, Intervention, Signature
from steadytrain.diagnosis.row_signs import reads_other_rows
from steadytrain.diagnosis.signs import measured, ruled_out, seen, symptom, when
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case

SAID = ("mixed-rows", "regrouped-rows", "carried-state")


@final
class MixedRows(Cause):
    """The model mixes rows: axes are exchanged, rows are not put back in their order, or get the state of others.

    Means:
        The output of one sample depends on the other samples of its batch. Layers of torch read [places, rows,
        features] by default. Given [rows, places, features], they attend, or step, from one sample of the batch to the
        next and never along the places of one sample. Tokens that are sorted for a part of the model, as by expert, and
        not scattered back get the result of another token. No shape is wrong, so nothing is raised.

    Causes:
        - `batch_first=True` is missing in `LSTM`, `GRU`, `MultiheadAttention` or `TransformerEncoderLayer`
        - a transpose that is missing, or made twice
        - `y = f(x[order])` without `out[order] = y` after it: experts, packed or sorted rows
        - `out, hidden = model(x, hidden)` over shuffled batches

    Next:
        1. Change one row of a batch, and compare the outputs of the others.
        2. Where an axis was exchanged, pass `batch_first=True`: nothing else has to change.
        3. Where tokens were sorted, put the results back: `out = torch.empty_like(y); out[order] = y`.
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
            of=("mixed-rows",),
        ),
        Intervention(
            "restored-order",
            4,
            "put the rows back into their order after the part that needs them sorted or grouped",
            code="out = torch.empty_like(y); out[order] = y",
            of=("regrouped-rows", "batch_gradient"),
        ),
        Intervention(
            "new-state",
            4,
            "begin each batch with a new recurrent state",
            code="out, _ = model(x)  # or hidden = None before it",
            of=("carried-state",),
        ),
    )
    grade = "A"
    source = "the documentation of MultiheadAttention (batch_first is False by default)"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *symptom(case, CERTAIN, *SAID, invariant=True),
                *when(
                    reads_other_rows(case) and seen(case, *SAID) is None,
                    CERTAIN,
                    f"the output of one row depends on the other rows of the batch: "
                    f"{measured(case, 'batch_gradient'):.3g} of the gradient to its own; tokens may have been sorted "
                    "and not put back in their order",
                    "fact batch_gradient",
                    invariant=True,
                ),
                *symptom(case, HINT, "no-learning", "plateau"),
                *ruled_out(
                    seen(case, *SAID) is None and not reads_other_rows(case),
                    "no layer goes over the rows of the batch, none is left sorted, and no state is carried over",
                ),
            )
        )
