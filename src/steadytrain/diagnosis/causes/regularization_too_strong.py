"""Dropout or label smoothing that leaves nothing to learn from."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, FAIR, STRONG, Cause, Signature
from steadytrain.diagnosis.interventions import LESS_DROPOUT, LESS_SMOOTHING
from steadytrain.diagnosis.setting_signs import changed_settings
from steadytrain.diagnosis.signs import above, measured, not_finite, quiet, ruled_out, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class RegularizationTooStrong(Cause):
    """Dropout or label smoothing is so strong that the model learns nothing, or next to nothing.

    Means:
        A dropout of 0.9 keeps one value in ten, so each step trains another small part of the model on noise. With a
        label smoothing of 0.5 half of each target is a guess: the loss cannot fall below the entropy of that target,
        however good the model is.

    Causes:
        - the share to keep given where the share to drop is meant
        - settings of a small data set used for a large one, or several regularizers at once
        - a label smoothing in percent

    Next:
        1. No dropout and no smoothing for some hundred steps: does the model learn?
        2. Overfit one batch without any regularization, then add one at a time.
        3. Usual are a dropout of 0 to 0.3 and a smoothing of 0 to 0.1.
    """

    axis = "model"
    base_rate = 4.0
    rivals = ("learning-rate-too-low", "weight-decay-misuse", "dead-units", "label-misalignment")
    expects = like(
        "script", removed=("dropout-none", "eval-mode"), either=("smoothing-none", "learning-rate-up", "old-settings")
    )
    confirming = ("dropout-none", "old-settings")
    spared = ("learning-rate-third",)
    interventions = (LESS_DROPOUT, LESS_SMOOTHING)
    grade = "A"
    source = "Srivastava and others (JMLR 2014) on dropout rates; 1512.00567 and 1906.02629 on label smoothing"

    def signature(self, case: Case) -> Signature:
        drops, smooths = measured(case, "dropout"), measured(case, "label_smoothing")
        changed = changed_settings(case, "dropout", CERTAIN)
        return Signature(
            (
                *changed,
                *above(case, "dropout", DROPS_MOST, STRONG + FAIR, "dropout sets {value} of the values to zero"),
                *above(case, "label_smoothing", SMOOTHS_MUCH, STRONG, "{value} of each target is smoothed away"),
                *symptom(case, FAIR, "no-learning", "plateau"),
                *ruled_out(quiet(case), "no symptom above a note was seen", "symptoms"),
                *ruled_out(not_finite(case), "regularization makes nothing infinite", "symptoms"),
                *ruled_out(
                    not drops > DROPS_MOST and not smooths > SMOOTHS_MUCH and not changed,
                    "neither dropout nor smoothing is strong",
                ),
            )
        )


DROPS_MOST, SMOOTHS_MUCH = 0.75, 0.3
"""Usual are a dropout up to 0.5 and a smoothing of 0.1."""
