"""An operation works along another axis than the one that is meant."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, HINT, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import ruled_out, seen, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case

SAID = ("scrambled-axes", "mixed-orders", "misnormalized-attention")


@final
class ScrambledAxes(Cause):
    """An operation works along another axis than the one that is meant: a view for a permute, a softmax over one score.

    Means:
        `view` and `reshape` do not move values. An image [rows, columns, channels] viewed as [channels, rows, columns],
        or logits [rows, places, classes] viewed as [rows, classes, places], keep their numbers in the old order:
        places, channels and classes are mixed. So are records that were sorted by another key than that of the rows.
        The loss falls to what can be learned from mixed values, and stays there.

    Causes:
        - `images.reshape(n, 3, height, width)` of an array of NumPy with the channels last
        - `logits.view(rows, classes, places)` before a cross entropy
        - a softmax of attention over the queries, or over a dimension of size 1, where all weights are 1
        - heads of attention that are split or merged without a transpose
        - observations of a rollout that are transposed before they are flattened, and advantages that are not
        - a table of records that are sorted by time first and by sensor second, reshaped to [sensors, times]

    Next:
        1. Put `permute` or `transpose` in its place, or give the softmax the dimension of the keys.
        2. Show an image, or compare one row with what it should hold.
    """

    axis = "model"
    base_rate = 1.0
    rivals = ("learning-rate-too-low", "label-misalignment")
    expects = like("script")
    spared = ("drop-batch", "float32")
    interventions = (
        Intervention(
            "permute-axes",
            4,
            "permute the axes in place of the view",
            code="x = x.permute(0, 2, 1)  # not x.view(rows, classes, places)",
            of=("views", "roughness"),
        ),
        Intervention(
            "softmax-over-keys",
            4,
            "take the softmax over the places that are attended to",
            code="weights = scores.squeeze(-1).softmax(dim=-1)  # scores [rows, places, 1]",
            of=("misnormalized-attention",),
        ),
        Intervention(
            "sort-by-rows-first",
            4,
            "sort by the key of the table's rows first, then by the places within a row",
            code='records = records.sort_values(["sensor", "time"])  # np.lexsort takes its first key last',
            of=("sorted_records",),
        ),
        Intervention(
            "flatten-alike",
            4,
            "flatten all tables of a rollout in one order",
            code="flat = {name: table.transpose(0, 1).flatten(0, 1) for name, table in tables.items()}",
            of=("mixed-orders",),
        ),
    )
    grade = "B"
    source = "the documentation of Tensor.view and Tensor.permute"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *symptom(case, CERTAIN, *SAID, invariant=True),
                *symptom(case, HINT, "no-learning", "plateau"),
                *ruled_out(seen(case, *SAID) is None, "no operation works along another axis than it should"),
            )
        )
