"""Right answers among the wrong ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, HINT, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import ruled_out, seen, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class FalseNegatives(Cause):
    """Negatives in the batch are really positives: the same document or product stands in it several times.

    Means:
        A contrastive loss over a batch takes every other row for a wrong answer. Where data are sorted, or a catalogue
        is small, many of these false negatives equal the right answer. The loss stays near the logarithm of how many
        there are, and the model learns to tell equal things apart.

    Causes:
        - a click log sorted by product, or passages in the order of their documents, without shuffling
        - a batch that is large for the number of different partners

    Next:
        1. Shuffle, or take each partner once a batch.
        2. Mask what equals the right answer in the logits.
    """

    axis = "data"
    base_rate = 2.0
    rivals = ("unshuffled-data", "learning-rate-too-low", "repeated-data")
    expects = like("script", either=("reorder",))
    spared = ("drop-batch", "float32")
    interventions = (
        Intervention(
            "distinct-rows",
            2,
            "shuffle the data, or take each partner once a batch",
            code="loader = DataLoader(pairs, shuffle=True)  # or mask: logits.masked_fill(same & ~eye, -inf)",
        ),
    )
    grade = "A"
    source = "2007.00808 (ANCE) and 2010.08191 (RocketQA) on false negatives"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *symptom(case, CERTAIN, "false-negatives", invariant=True),
                *symptom(case, HINT, "no-learning", "plateau"),
                *ruled_out(seen(case, "false-negatives") is None, "the rows of a batch are not copies of each other"),
            )
        )
