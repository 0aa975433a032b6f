"""Units that are off for every input."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, FAIR, HINT, STRONG, Cause, Intervention, Signature
from steadytrain.diagnosis.interventions import LOWER_RATE, NORM
from steadytrain.diagnosis.signs import fact, layer_of, not_finite, noted, ruled_out, seen, surveyed, symptom, when
from steadytrain.diagnosis.trial_effects import like
from steadytrain.experiments.case import SAME_STORY_STEPS
from steadytrain.grouping.catalog import declared

if TYPE_CHECKING:
    from steadytrain.core.model import Symptom
    from steadytrain.experiments.case import Case


@final
class DeadUnits(Cause):
    """Most units of a layer give zero, or the end of their range, for every input, and get no gradient.

    Means:
        A ReLU whose input is always negative has a gradient of zero and cannot recover; a saturated tanh or sigmoid
        hardly can. A layer of such units passes nothing on. Often one earlier step that was too large killed them: look
        for the cause before it.

    Causes:
        - one update that was too large; a bias that drifted far away
        - inputs that are not centred or scaled
        - initialisation too large for a saturating unit

    Next:
        1. Go back to before the units died and lower the rate, or warm up.
        2. LeakyReLU or GELU in the named layer.
        3. Normalise the inputs of the layer.
    """

    axis = "model"
    base_rate = 3.0
    rivals = (
        "learning-rate-too-high",
        "bad-initialization",
        "learning-rate-too-low",
        "frozen-parameters",
        "infeasible-target",
    )
    expects = like("script", either=("leaky-units", "reinitialize"))
    confirming = ("leaky-units",)
    spared = ("drop-batch", "float32")
    interventions = (
        LOWER_RATE,
        Intervention(
            "leaky-units",
            5,
            "units with a slope on both sides in the named layer",
            "leaky-units",
            code="torch.nn.LeakyReLU(0.01)  # in place of ReLU",
        ),
        NORM,
    )
    grade = "A"
    source = "AutoTrainer (ICSE 2021); Maas and others 2013 on leaky units"

    def signature(self, case: Case) -> Signature:
        worst = _worst(case)
        burst = _burst_before(case)
        return Signature(
            (
                *when(
                    worst[1] > 0.7,
                    HINT if burst is not None else CERTAIN if worst[1] >= WHOLE_LAYER else STRONG,
                    f"{worst[1]:.0%} of the units of {worst[0]} are at an end for every sample",
                    "fact dead_units",
                    share=worst[1],
                ),
                *when(
                    0.0 <= worst[1] <= 0.5 and surveyed(case),
                    -STRONG,
                    "no layer has half of its units dead",
                    "fact dead_units",
                ),
                *symptom(case, HINT if burst is not None else STRONG, "dead-units"),
                *when(
                    burst is not None,
                    -FAIR,
                    f"units died after something else went wrong: {burst.message}" if burst is not None else "",
                    "symptoms",
                ),
                *when(
                    bool(case.entries("cancelled_variances")),
                    -STRONG,
                    "inputs are scaled by a variance that rounding decides, which drives units to their ends",
                    "fact cancelled_variances",
                ),
                *symptom(case, HINT, "plateau", "no-learning", "vanishing-gradients"),
                *ruled_out(not_finite(case), "a dead unit makes nothing infinite", "symptoms"),
                *ruled_out(seen(case, "equal-inputs") is not None, "all rows of the input are the same", "symptoms"),
            ),
            layer=worst[0] or layer_of(case),
        )


def _burst_before(case: Case) -> Symptom | None:
    """The burst shortly before the units died, None if there was none. The dead units are then its result."""
    died = noted(case, "dead-units")
    if died is None:
        return None
    near = range(died.first_step - SAME_STORY_STEPS, died.first_step)
    return next((one for one in case.symptoms if declared(one.name).bursts and one.first_step in near), None)


WHOLE_LAYER = 0.99
"""Share from which the whole layer is dead, whatever its design; sparse layers keep a few units in a hundred."""


def _worst(case: Case) -> tuple[str | None, float]:
    """The layer with the largest share of units at an end, and that share; 0 if the survey saw none."""
    shares: dict[str, float] = {}
    for name in ("dead_units", "saturated_units"):
        found = fact(case, name)
        shares |= found if isinstance(found, dict) else {}
    return max(shares.items(), key=lambda item: item[1], default=(None, 0.0))
