"""The script makes no more updates."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import ruled_out, seen, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class SkippedUpdates(Cause):
    """The script skips every update from some step on, though its loop still makes backward passes.

    Means:
        A condition around the update is never met again. Nothing fails: the loss is computed, gradients are finite, and
        the weights stay what they were. A loss scaler of the script's own that never clears its overflow flag is the
        usual case: one overflow, and all later steps are skipped while the scale falls to its lower bound.

    Causes:
        - a flag of an overflow, of a NaN or of a spike that is set once and never cleared
        - a check of scaled gradients that goes on with the next batch before `scaler.update()` can lower the scale
        - a counter of accumulated batches that is not reset, or is compared with the wrong number
        - a bound for the loss or the gradient norm that the run has left for good

    Next:
        1. Print the condition around `optimizer.step()`, and count the updates that it prevents.
        2. Clear the flag at the start of each step, or use `torch.amp.GradScaler`.
        3. End the run, with a message, after as many skipped updates in a row.
    """

    axis = "optimizer"
    base_rate = 3.0
    rivals = ()
    expects = like("script")
    confirming = ()
    spared = ()
    interventions = (
        Intervention(
            "clear-skip-flag",
            4,
            "clear at each step what makes the script skip its update",
            code="found_inf = False  # at the start of each step, before the gradients are looked at",
        ),
        Intervention(
            "lower-scale-on-skip",
            4,
            "let the scaler skip the update, and lower its scale",
            code="scaler.step(optimizer); scaler.update()  # before the continue",
            of=("kept-loss-scale",),
        ),
    )
    grade = "C"
    source = "documentation of torch.amp"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *symptom(case, CERTAIN, "kept-loss-scale", invariant=True),
                *symptom(case, CERTAIN, "stopped-updates"),
                *ruled_out(
                    seen(case, "stopped-updates", "kept-loss-scale") is None,
                    "updates followed the backward passes",
                    "symptoms",
                ),
            ),
        )
