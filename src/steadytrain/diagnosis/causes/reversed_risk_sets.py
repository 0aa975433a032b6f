"""A partial likelihood with the wrong rows at risk."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, HINT, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import ruled_out, seen, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class ReversedRiskSets(Cause):
    """The Cox loss sorts by rising time, so its risk sets hold those who left earlier.

    Means:
        Each event is compared with rows that are no longer at risk. The model learns the order of the times backwards,
        or nothing: the loss falls a little, and the concordance of held-out rows is below one half.

    Causes:
        - an ascending sort before a cumulative sum from the front
        - a mask of pairs the wrong way round

    Next:
        1. Sort by falling time, then take the cumulative sum.
        2. Check the sign of the score as well: a higher risk must mean an earlier event.
    """

    axis = "loss"
    base_rate = 1.0
    rivals = ("learning-rate-too-low", "label-misalignment")
    expects = like("script")
    spared = ("drop-batch", "float32")
    interventions = (
        Intervention(
            "sort-by-falling-time",
            4,
            "sort by falling time before the cumulative sum",
            code="order = torch.argsort(time, descending=True)",
        ),
    )
    grade = "B"
    source = "Cox 1972 on the risk set; 1606.00931 (DeepSurv), whose code sorts by falling time"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *symptom(case, CERTAIN, "reversed-risk-sets", invariant=True),
                *symptom(case, HINT, "no-learning", "plateau", "validation-gap"),
                *ruled_out(seen(case, "reversed-risk-sets") is None, "no risk set is built by rising time"),
            )
        )
