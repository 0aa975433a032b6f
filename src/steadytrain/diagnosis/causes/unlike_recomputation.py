"""A recomputed forward that draws other random numbers than the first one."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, HINT, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import ruled_out, seen, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class UnlikeRecomputation(Cause):
    """An activation checkpoint recomputes its forward with other random numbers than those of the loss.

    Means:
        Gradients belong to another dropout mask, latent sample or route than the loss. On average over many draws they
        may even point the right way for a dropout; for a sample and its own scale they do not.

    Causes:
        - `torch.utils.checkpoint` with `preserve_rng_state=False` over a part that draws

    Next:
        1. Leave the option out, so that the random state is restored for the recomputed forward.
        2. Compare the gradients with those of a run without the checkpoint.
    """

    axis = "model"
    base_rate = 1.0
    rivals = ("learning-rate-too-low", "learning-rate-too-high")
    expects = like("script", removed=("preserve-random-state",))
    confirming = ("preserve-random-state",)
    spared = ("drop-batch", "float32")
    interventions = (
        Intervention(
            "preserve-random-state",
            3,
            "restore the random state for the recomputed forward",
            "preserve-random-state",
            code="checkpoint(part, x, use_reentrant=False)  # without preserve_rng_state=False",
        ),
    )
    grade = "B"
    source = "torch.utils.checkpoint, on preserve_rng_state"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *symptom(case, CERTAIN, "unlike-recomputation", invariant=True),
                *symptom(case, HINT, "no-learning", "plateau", "divergence", "lost-progress"),
                *ruled_out(seen(case, "unlike-recomputation") is None, "no backward draws random numbers"),
            )
        )
