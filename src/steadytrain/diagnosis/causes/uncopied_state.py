"""Best weights that were never copied."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import noted, ruled_out, seen, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class UncopiedState(Cause):
    """A state that was kept, as the best one or as a backup, shares its tensors with the model and changes with it.

    Means:
        `state_dict()` returns references to the live tensors. Without a copy, the snapshot of the best weights is
        always the present model. To restore or to save it changes nothing: the last, perhaps overfitted weights are
        kept. The same holds of `best_model = model`. A backup of the weights that is no copy is overwritten by the
        average (EMA) that is put in for an evaluation, so that putting it back changes nothing and training goes on
        from the average.

    Causes:
        - `best = model.state_dict()` in place of `copy.deepcopy(model.state_dict())`
        - `best_model = model`, which is saved or tested after the loop
        - `backup[name] = p.data` before an average is copied in, in place of `p.data.clone()`
        - a list or dictionary of checkpoints in memory that all hold the same tensors

    Next:
        1. Copy: `copy.deepcopy(model.state_dict())`, or `{k: v.clone() for k, v in ...}`.
        2. Evaluate what was kept after the loop, and compare with the score that was kept.
    """

    axis = "harness"
    base_rate = 1.0
    rivals = ("train-eval-mode", "stale-optimizer-state")
    expects = like("script")
    spared = ("drop-batch", "float32")
    interventions = (
        Intervention(
            "copied-state",
            2,
            "copy the state when it is kept",
            code="best = copy.deepcopy(model.state_dict())",
        ),
    )
    grade = "A"
    source = "the documentation of torch on saving and loading models: state_dict() returns references"

    def signature(self, case: Case) -> Signature:
        replaced = noted(case, "replaced-weights")
        left_in = replaced is not None and "updates" in replaced.numbers
        return Signature(
            (
                *symptom(case, CERTAIN, "uncopied-state", invariant=True),
                *(symptom(case, CERTAIN, "replaced-weights", invariant=True, notes=True) if left_in else ()),
                *ruled_out(
                    seen(case, "uncopied-state") is None and not left_in,
                    "no state of the model's own was kept or loaded",
                ),
            )
        )
