"""An evaluation changes the training."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, HINT, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import noted, ruled_out, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class EvaluationSideEffect(Cause):
    """An evaluation changes something of the training and does not put it back.

    Means:
        After each evaluation the loss stands higher for some steps: the training repairs what the evaluation changed,
        again and again. What is merged, added or folded into the weights for the evaluation and not taken out adds up.

    Causes:
        - adapters (LoRA) that are merged into the base weights and not subtracted again
        - averaged weights that are swapped in, and only some of which are swapped back
        - weights that are rounded, pruned, clamped or cast in place for an export
        - a hidden state, running statistics or an optimizer that begin anew

    Next:
        1. Compare a digest of all weights, buffers and of the optimizer's state before and after one evaluation.
        2. Evaluate `copy.deepcopy(model)`, or undo each change in a `finally`.
    """

    axis = "harness"
    base_rate = 1.0
    rivals = ("learning-rate-too-high", "stale-optimizer-state", "unshuffled-data")
    expects = like("script")
    spared = ("drop-batch", "float32")
    interventions = (
        Intervention(
            "evaluate-a-copy",
            5,
            "evaluate a copy of the model, or put back what the evaluation changed",
            code="evaluate(copy.deepcopy(model))  # or subtract what was merged before the next step",
        ),
    )
    grade = "B"
    source = "2106.09685, section 4.1 on merging and its reverse; the mergers of peft, which keep what they merged"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *symptom(case, CERTAIN, "evaluation-setback", notes=True),
                *symptom(case, HINT, "loss-spike", "update-norm-spike", "lost-progress"),
                *ruled_out(noted(case, "evaluation-setback") is None, "the loss does not rise after evaluations"),
            )
        )
