"""A state of the training that its checkpoint leaves out."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, HINT, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import ruled_out, seen, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class UnsavedState(Cause):
    """The checkpoint that a training goes on from leaves out an object that has a state.

    Means:
        Weights and moments go on where they stood, and an object beside them begins anew: running statistics of
        observations or returns, an average of the weights, a schedule of the script's own, a loss scaler. Fresh
        statistics of a few batches put the inputs on another scale than the weights were trained on, so the loss jumps
        and the policy acts on what it has never seen.

    Causes:
        - a checkpoint of model and optimizer only, in a script that also normalises observations or returns
        - an average or a schedule that was added later, and not to the checkpoint
        - a state that is saved and never read back

    Next:
        1. Save the object's state with the model, and load it before the first update.
        2. Compare mean, variance and count before the save and after the load.
    """

    axis = "harness"
    base_rate = 4.0
    rivals = ("stale-optimizer-state", "data-shift")
    expects = like("script")
    spared = ("drop-batch", "float32")
    interventions = (
        Intervention(
            "save-whole-state",
            4,
            "save and load the object's state with the model",
            code='torch.save({"model": model.state_dict(), "obs_rms": vars(obs_rms)}, path)\n'
            'obs_rms.__dict__.update(torch.load(path, weights_only=False)["obs_rms"])',
        ),
    )
    grade = "B"
    source = "stable-baselines #228; stable-baselines3 #1256; tianshou #846; measured for this project"

    def signature(self, case: Case) -> Signature:
        found = seen(case, "unsaved-state")
        return Signature(
            (
                *symptom(case, CERTAIN if found and found.severity == "warning" else HINT, "unsaved-state"),
                *symptom(case, CERTAIN, "unrestored-state", invariant=True),
                *symptom(case, HINT, "incomplete-resume"),
                *ruled_out(
                    found is None and seen(case, "unrestored-state") is None,
                    "the checkpoint holds what the training keeps beside model and optimizer",
                ),
            )
        )
