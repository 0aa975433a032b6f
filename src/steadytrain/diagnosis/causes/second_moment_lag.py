"""A second moment that remembers smaller gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import FAIR, HINT, Cause, Signature
from steadytrain.diagnosis.interventions import BETA2, DROP_BATCH, RESET_MOMENTS, UPDATE_CLIPPING
from steadytrain.diagnosis.script_signs import lost_steps
from steadytrain.diagnosis.signs import (
    fact,
    first_name,
    listed,
    no_second_moment,
    quiet,
    resumed_near,
    ruled_out,
    symptom,
    when,
)
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class SecondMomentLag(Cause):
    """Adam divides by a second moment that still reflects earlier, smaller gradients.

    Means:
        With beta2 0.999 the memory is 1,000 steps. A gradient that grows faster is divided by too small a number, and
        the update exceeds the rate by that factor. In CLIP training such readings came 1 to 8 steps before each spike
        (2304.13013). A lower beta2 or a limit on the update removes it at the same rate and on the same data.

    Causes:
        - beta2 too high for changing gradients: new data, layers that start to learn, small batches
        - training that had nearly stopped (2506.04805): the moment fell, then the gradient grew

    Next:
        1. Limit the update: rate over max(1, RMS of gradient over moment), as StableAdamW does.
        2. beta2 of 0.95.
        3. Drop the batch at which it began; the state stays vulnerable, so the spike will recur.
    """

    axis = "optimizer"
    base_rate = 8.0
    rivals = ("bad-batch", "learning-rate-too-high", "stale-optimizer-state", "data-shift", "missing-warmup")
    # If the moments were cleared some time before the onset, they have adapted to the small gradients again; and the
    # gradients are too large for epsilon to matter.
    expects = like("moments", either=("reset-moments", "epsilon-up"))
    confirming = ("beta2-lower", "update-clipping")
    spared = ("drop-batch", "rewarm", "float32")
    interventions = (UPDATE_CLIPPING, BETA2, RESET_MOMENTS, DROP_BATCH)
    grade = "A"
    source = "2304.13013 (StableAdamW); 2506.04805; marin #1368"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *ruled_out(quiet(case), "no symptom above a note was seen", "symptoms"),
                *symptom(case, FAIR, "second-moment-lag"),
                *symptom(case, HINT, "update-norm-spike"),
                *listed(
                    case, "second_moment_lag", FAIR, "the gradient is far above the root of the second moment: {names}"
                ),
                *when(_beta2(case) >= 0.99, HINT, f"beta2 is {_beta2(case)}", "fact betas"),
                *when(
                    resumed_near(case, RESUME_STEPS) or lost_steps(case, RESUME_STEPS) > 0,
                    -FAIR,
                    "the state was loaded or lost before it",
                    "facts",
                ),
                *ruled_out(no_second_moment(case), "the optimizer keeps no second moment"),
            ),
            layer=first_name(case, "second_moment_lag"),
        )


RESUME_STEPS = 100


def _beta2(case: Case) -> float:
    betas = fact(case, "betas")
    return float(betas[1]) if isinstance(betas, list) and len(betas) > 1 else 0.0
