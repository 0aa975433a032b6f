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
        - each row itself among its choices: a diagonal that is not masked, or two views that are equal
        - a batch that is large for the number of different partners

    Next:
        1. Shuffle, or take each partner once a batch.
        2. Mask what equals the right answer in the logits, and the row itself.
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
        Intervention(
            "mask-itself",
            4,
            "mask the row itself, and augment each view on its own",
            code="logits = logits.masked_fill(torch.eye(len(logits), dtype=torch.bool), -1e9)",
            of=("self-pairs",),
        ),
    )
    grade = "A"
    source = "2007.00808 (ANCE) and 2010.08191 (RocketQA) on false negatives"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *symptom(case, CERTAIN, "false-negatives", "self-pairs", invariant=True),
                *symptom(case, HINT, "no-learning", "plateau"),
                *ruled_out(
                    seen(case, "false-negatives", "self-pairs") is None,
                    "the rows of a batch are not copies of each other",
                ),
            )
        )
