"""Steps that are too short."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import FAIR, STRONG, Cause, Signature
from steadytrain.diagnosis.interventions import HIGHER_RATE
from steadytrain.diagnosis.signs import above, below, not_finite, quiet, ruled_out, seen, symptom
from steadytrain.diagnosis.trial_effects import like
from steadytrain.experiments.trial_tables.updates import RATE_CUTS

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class LearningRateTooLow(Cause):
    """The learning rate is too low to learn anything within the run.

    Means:
        Updates change weights by less than a hundred-thousandth per step. Gradients exist and point the right way; with
        a larger rate the model learns at once.

    Causes:
        - a rate that was divided again: by a schedule that ended, by groups, by a wrong unit
        - a warm-up as long as the run
        - a rate meant for SGD used with Adam, or the reverse

    Next:
        1. Ten times the rate from the snapshot on.
        2. Print the actual rate of each group, not the configured one.
        3. A range test: from 1e-7 up over 100 steps.
    """

    axis = "optimizer"
    base_rate = 3.0
    rivals = (
        "scheduler-misstep",
        "frozen-parameters",
        "lost-updates",
        "gradient-underflow",
        "optimizer-epsilon-underflow",
        "loss-function-misuse",
        "shape-broadcast",
        "infeasible-target",
        "label-misalignment",
        "dead-units",
        "bad-initialization",
        "detached-graph",
        "parameters-not-in-optimizer",
        "weight-decay-misuse",
    )
    expects = like(
        "script",
        removed=("learning-rate-up",),
        persists=(
            *RATE_CUTS,
            "clip",
            "longer-warmup",
        ),
    )
    confirming = ("learning-rate-up",)
    spared = ()
    interventions = (HIGHER_RATE,)
    grade = "A"
    source = "Smith 1506.01186 on range tests; nanoGPT #411"

    def signature(self, case: Case) -> Signature:
        # At the end of a decaying schedule, or of what there is to learn, small updates are normal.
        short = (
            *below(case, "update_ratio", 1e-4, STRONG, "an update changes no matrix by more than {value} of it"),
            *below(case, "update_ratio_median", 1e-5, FAIR, "an update changes the median tensor by {value} of it"),
        )
        return Signature(
            (
                *(() if quiet(case) and _came_to_rest(case) else short),
                *above(case, "update_ratio", 0.003, -STRONG, "an update changes a matrix by {value} of it"),
                *below(
                    case,
                    "clip_coefficient",
                    0.01,
                    -STRONG,
                    "clipping leaves {value} of the gradient: the limit is too low, and not the rate",
                ),
                *symptom(case, FAIR, "no-learning", "plateau"),
                *symptom(case, -STRONG, "zero-learning-rate"),  # ten times nothing is nothing
                *ruled_out(
                    seen(case, "spent-schedule") is not None,
                    "the rate was higher until its schedule was over",
                    "symptoms",
                ),
                *ruled_out(
                    seen(case, "cleared-gradients") is not None,
                    "the script clears the gradients before the step",
                    "symptoms",
                ),
                *ruled_out(not_finite(case), "short steps make nothing infinite", "symptoms"),
                *ruled_out(
                    seen(case, "divergence", "loss-spike", "exploding-gradients") is not None,
                    "the loss rises",
                    "symptoms",
                ),
            ),
        )


def _came_to_rest(case: Case) -> bool:
    """Whether the last rate is below a tenth of the highest, or the last loss below half of the first."""
    rates, losses = case.window.series("learning_rate").values, case.window.series("loss").values
    slow = len(rates) > 0 and bool(rates[-1] < 0.1 * rates.max())
    return slow or (len(losses) > 0 and bool(losses[-1] < 0.5 * losses[0]))
