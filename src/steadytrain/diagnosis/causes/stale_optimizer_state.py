"""Moments that do not belong to these weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, FAIR, HINT, STRONG, Cause, Intervention, Signature
from steadytrain.diagnosis.interventions import LONGER_WARMUP, RESET_MOMENTS, UPDATE_CLIPPING
from steadytrain.diagnosis.script_signs import begins_anew, lost_steps
from steadytrain.diagnosis.signs import (
    Signs,
    above,
    fact,
    holds,
    listed,
    quiet,
    resumed_near,
    ruled_out,
    seen,
    surveyed,
    symptom,
    when,
)
from steadytrain.diagnosis.trial_effects import like
from steadytrain.experiments.trial_tables.updates import RATE_CUTS

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class StaleOptimizerState(Cause):
    """The optimizer's state was lost, permuted, or belongs to other weights.

    Means:
        Moments of other tensors, or of an earlier time, divide gradients by the wrong numbers. After a loss of state
        the first steps have full size in every direction. The test: clearing the moments with a warm-up removes the
        symptom, a warm-up alone does not. Permuted moments of equal shapes raise no error.

    Causes:
        - a checkpoint without the optimizer, or with another order of its parameters (apex #180, pytorch-i3d #38)
        - a sharded state that was merged in another order (transformers #25849, torchtitan #1136)
        - weights changed without the optimizer: pruned, merged, loaded
        - an optimizer that is made anew in each step or epoch
        - second moments that became 0 in a checkpoint of 16 bits

    Next:
        1. Clear the moments and warm up over 2/(1 - beta2) steps.
        2. Load the state by name, and compare step count, betas and shapes with what was saved.
        3. Save, load, take one step: it must equal that of the uninterrupted run.
    """

    axis = "optimizer"
    base_rate = 22.0
    rivals = (
        "bad-batch",
        "second-moment-lag",
        "learning-rate-too-high",
        "missing-warmup",
        "missing-zero-grad",
        "scheduler-misstep",
    )
    expects = like(
        "state",
        either=(
            "beta2-lower",
            "longer-warmup",
            *RATE_CUTS,
        ),
    )
    confirming = ("reset-moments",)
    spared = ("rewarm", "drop-batch", "float32")
    interventions = (
        LONGER_WARMUP,
        UPDATE_CLIPPING,
        RESET_MOMENTS,
        Intervention(
            "load-state-by-name",
            4,
            "load the optimizer's state by name",
            code="optimizer.load_state_dict(state)  # after sorting its entries by parameter name",
        ),
        Intervention(
            "moments-in-float32",
            4,
            "save the optimizer's state in float32: squares of small gradients are 0 in 16 bits",
            code="torch.save(optimizer.state_dict(), path)  # without .half()",
        ),
    )
    grade = "A"
    source = "transformers #25849, #23034; apex #180; pytorch #113673; OPT chronicles; measured for this project"

    def signature(self, case: Case) -> Signature:
        lag = lost_steps(case, RESUME_STEPS)
        return Signature(
            (
                *when(
                    lag > 0,
                    STRONG,
                    f"the optimizer has counted {lag:.0f} steps less than the run",
                    "fact state_step_lag",
                    lag=lag,
                ),
                *listed(
                    case,
                    "state_shapes_wrong",
                    CERTAIN,
                    "state of another shape than its parameter: {names}",
                    invariant=True,
                ),
                *above(
                    case,
                    "second_moment_correlation",
                    0.6,
                    -FAIR,
                    "second moments and squared gradients correlate ({value}) in every matrix",
                ),
                *when(
                    resumed_near(case, RESUME_STEPS),
                    STRONG,
                    "the run was resumed shortly before",
                    "window resumed",
                ),
                *holds(case, "state_loaded_optimizer", FAIR, "the optimizer's state was loaded"),
                *(symptom(case, STRONG, "incomplete-resume") if not begins_anew(case) else ()),
                *symptom(case, CERTAIN, "short-lived-optimizer", invariant=True),
                *_of_the_load(case),
                *symptom(case, FAIR, "replaced-weights"),
                *symptom(case, FAIR, "update-norm-spike"),
                *symptom(case, HINT, "second-moment-lag", "divergence", "loss-spike"),
                *ruled_out(
                    fact(case, "betas") is None and fact(case, "momentum") is None and surveyed(case),
                    "the optimizer keeps no moments",
                ),
                *ruled_out(quiet(case), "no symptom above a note was seen", "symptoms"),
            ),
        )


def _of_the_load(case: Case) -> Signs:
    """Signs of a state that was loaded, and is not what the optimizer needs."""
    resume = seen(case, "incomplete-resume")
    numbers = resume.numbers if resume is not None else {}
    emptied, exchanged, moved = (numbers.get(name, 0.0) for name in ("share", "groups", "moments"))
    left = numbers.get("parameters", 0.0) if resume is not None and not begins_anew(case) else 0.0
    return (
        *when(
            left > 0.0,
            STRONG,
            f"the checkpoint that was loaded holds the moments of {left:.0f} parameters, the optimizer began without "
            "them, and the loss rose",
            "symptoms",
            invariant=True,
        ),
        *when(
            exchanged > 0.0,
            CERTAIN,
            "the order of the parameter groups has changed: the state is loaded by position, and "
            f"{exchanged:.0f} groups got the learning rate, momentum and moments of another one",
            "symptoms",
            invariant=True,
        ),
        *when(
            moved > 0.0 and "schedule" not in numbers,
            CERTAIN,
            f"the order of the parameters has changed: {moved:.0f} of them have the moments of another one, because "
            "the state is loaded by position",
            "symptoms",
            invariant=True,
        ),
        *when(
            emptied > 0.0,
            CERTAIN,
            f"{emptied:.0%} of the second moments were 0 after the load, too small for the format that the "
            "checkpoint keeps them in (they underflow in float16): the first updates are far too large",
            "symptoms",
            invariant=True,
        ),
    )


RESUME_STEPS = 100
