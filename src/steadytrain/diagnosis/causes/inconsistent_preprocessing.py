"""Rows that are preprocessed in another way than those that a model learned from."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, STRONG, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import not_finite, noted, ruled_out, seen, symptom, when
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case

SAID = ("refitted-preprocessing", "renumbered-categories")


@final
class InconsistentPreprocessing(Cause):
    """Rows are preprocessed in another way than those that the model, or its pretrained weights, learned from.

    Means:
        A model reads numbers, and what they mean was settled when its preprocessing was fitted. A scaler or an encoder
        that is fitted anew gives the same value another number, so the model answers another question. The training
        looks sound; the score on held-out rows is off in either direction.

    Causes:
        - `fit_transform` on the test rows, where `transform` is meant
        - codes of categories that are numbered anew for each part
        - a mean and a spread of each part's own
        - images with blue first, as OpenCV reads them, in a pretrained model

    Next:
        1. Fit once, to the training rows; save it beside the weights.
        2. Send one known row through both ways and compare the numbers.
    """

    axis = "data"
    base_rate = 2.0
    rivals = ("data-shift", "label-leakage", "input-scale")
    expects = like("script")
    spared = ("drop-batch", "float32")
    interventions = (
        Intervention(
            "fit-once",
            5,
            "fit the preprocessing to the training rows, and only apply it to all others",
            code="x_train = scaler.fit_transform(x_train); x_test = scaler.transform(x_test)",
        ),
    )
    grade = "A"
    source = "scikit-learn, Common pitfalls and recommended practices: inconsistent preprocessing"

    def signature(self, case: Case) -> Signature:
        swapped = noted(case, "swapped-channels")
        return Signature(
            (
                *symptom(case, CERTAIN, *SAID, invariant=True),
                *when(
                    bool(swapped),
                    STRONG,
                    "images with blue first go into pretrained weights",
                    "symptom swapped-channels",
                ),
                *ruled_out(
                    seen(case, *SAID) is None and not swapped, "no preprocessing was seen to differ between rows"
                ),
                *ruled_out(not_finite(case), "another scale of held-out rows makes nothing infinite", "symptoms"),
            )
        )
