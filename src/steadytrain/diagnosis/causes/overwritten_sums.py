"""Values that should be summed overwrite each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, HINT, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import ruled_out, seen, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class OverwrittenSums(Cause):
    """Values with the same index overwrite each other where their sum is meant.

    Means:
        `total[index]` is read once, the values are added, and the result is written back once. Where an index occurs
        several times, only one of its values stays. A node of a graph then hears one of its neighbours in place of all,
        and a segment holds one of its rows. No error is raised, and the loss still falls to what that allows.

    Causes:
        - messages that are summed by `nodes[destination] += messages`
        - segments, clusters or words that are summed by their numbers
        - the same in NumPy, where `np.add.at` is meant

    Next:
        1. Use `total.index_add_(0, index, values)` or `scatter_add_`.
        2. Compare the sum of the result with the sum of the values.
    """

    axis = "model"
    base_rate = 1.0
    rivals = ("learning-rate-too-low", "learning-rate-too-high")
    expects = like("script")
    spared = ("drop-batch", "float32")
    interventions = (
        Intervention(
            "sum-by-index",
            4,
            "sum the values of each index",
            code="total.index_add_(0, index, values)  # not total[index] += values",
        ),
    )
    grade = "B"
    source = "the documentation of Tensor.index_put_ and Tensor.index_add_"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *symptom(case, CERTAIN, "overwritten-sums", invariant=True),
                *symptom(case, HINT, "no-learning", "plateau"),
                *ruled_out(seen(case, "overwritten-sums") is None, "no sum over a repeated index is written by +="),
            )
        )
