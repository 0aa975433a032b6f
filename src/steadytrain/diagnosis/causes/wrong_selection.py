"""Weights that are chosen by the wrong comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import ruled_out, seen, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class WrongSelection(Cause):
    """The weights that are kept are the worst ones, or the first: the comparison goes the wrong way.

    Means:
        Training is sound, and what is saved as its result is not its best. The comparison of the metric with the best
        one so far has the sign of another metric, or begins at a value that it can never pass.

    Causes:
        - `if val_loss > best_loss: save(model)`
        - `best_acc = 0` and `if acc < best_acc: save(model)`

    Next:
        1. Turn the comparison; begin at `float("inf")` for what should fall.
        2. Evaluate what was saved: its metric must be the best of the log.
    """

    axis = "harness"
    base_rate = 1.0
    rivals = ("uncopied-state", "train-eval-mode")
    expects = like("script")
    spared = ("drop-batch", "float32")
    interventions = (
        Intervention(
            "turn-comparison",
            2,
            "keep the weights where the metric got better",
            code="if val_loss < best_loss:  # best_loss = float('inf') before the loop",
        ),
    )
    grade = "A"
    source = "read in the source of the script: the comparison, and the name of the metric"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *symptom(case, CERTAIN, "wrong-best", invariant=True),
                *ruled_out(seen(case, "wrong-best") is None, "no comparison keeps what is worse"),
            )
        )
