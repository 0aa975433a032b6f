"""Validation rows that are augmented."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import not_finite, ruled_out, seen, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class AugmentedValidation(Cause):
    """The validation rows are augmented at random, as the training rows are.

    Means:
        Augmentation belongs to the training: it makes rows harder, and others in each epoch. A validation that is
        augmented measures these, not the rows to come, and differs from one evaluation to the next.

    Causes:
        - one data set with a random transform, split by `random_split` or `Subset`
        - a random transform in `__getitem__` without a switch

    Next:
        1. Make a data set without augmentation for the validation rows.
        2. Evaluate twice without a step between.
    """

    axis = "data"
    base_rate = 1.0
    rivals = ("train-eval-mode", "inconsistent-preprocessing")
    expects = like("script")
    spared = ("drop-batch", "float32")
    interventions = (
        Intervention(
            "plain-validation",
            5,
            "read the validation rows through a data set without augmentation",
            code="train, val = Subset(Images(augment), order[:cut]), Subset(Images(plain), order[cut:])",
        ),
    )
    grade = "A"
    source = "PyTorch forums and documentation of random_split: subsets share the data set and its transform"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *symptom(case, CERTAIN, "augmented-validation", invariant=True),
                *ruled_out(seen(case, "augmented-validation") is None, "no validation rows were seen to be augmented"),
                *ruled_out(not_finite(case), "augmentation of held-out rows makes nothing infinite", "symptoms"),
            )
        )
