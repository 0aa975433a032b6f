"""A schedule that does not run with the steps."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, FAIR, HINT, STRONG, Cause, Intervention, Signature
from steadytrain.diagnosis.interventions import HOLD_RATE
from steadytrain.diagnosis.script_signs import begins_anew
from steadytrain.diagnosis.signs import fact, holds, jump_of_rate, measured, ruled_out, seen, surveyed, symptom, when
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class SchedulerMisstep(Cause):
    """The learning-rate schedule is stepped too often or seldom, starts or scales wrongly, or is shorter than the run.

    Means:
        A schedule that is stepped once for each of `n` processes or micro-batches ends `n` times too early: the rate is
        near zero, or a cosine rises again. One that is never stepped stays where a warm-up begins, at zero. Compare the
        applied rate with the planned one.

    Causes:
        - a scheduler that a trainer prepared and the script steps too, or `n` times (accelerate #2926, particulate #22)
        - an epoch's scheduler stepped each batch; `T_max` in epochs and steps in batches
        - a length of one pass, `len(loader)`, for a run of several: it is `epochs * len(loader)`
        - a decay by hand without a floor: beyond its end the rate is negative
        - `ReduceLROnPlateau` in the mode `min` that is given an accuracy: it cuts the rate while the model learns
        - `ReduceLROnPlateau` that is stepped after each batch: the noise of the losses is taken for a plateau
        - a function of `LambdaLR` that returns a rate: it is multiplied with the rate of the optimizer
        - a scheduler of an optimizer that was replaced: it moves a rate that nothing uses
        - a scheduler that was not saved, or steps although the scaler skipped the update (pytorch #67590)

    Next:
        1. Print the rate at 10 steps of the run and compare it with the plan.
        2. Step it once per update, after `optimizer.step()`.
        3. Count in the unit that the scheduler was made for.
    """

    axis = "optimizer"
    base_rate = 12.0
    rivals = ("learning-rate-too-low", "learning-rate-too-high", "stale-optimizer-state", "data-shift")
    expects = like("script", removed=("constant-learning-rate",), either=("learning-rate-up",))
    confirming = ("constant-learning-rate",)
    spared = ("drop-batch", "float32")
    interventions = (
        Intervention(
            "scheduler-after-optimizer",
            5,
            "step the schedule after the update",
            code="optimizer.step(); scheduler.step()  # in this order",
            of=("scheduler_before_optimizer",),
        ),
        HOLD_RATE,
    )
    grade = "A"
    source = "accelerate #2926, #2773; diffusers #3954; transformers #26827; particulate #22"

    def signature(self, case: Case) -> Signature:
        calls = measured(case, "scheduler_steps_per_step")
        planned, steps = measured(case, "scheduler_planned"), measured(case, "steps_planned")
        short = planned < 0.5 * steps
        made = float(case.window.steps[-1]) if len(case.window.steps) else math.nan
        # A schedule may be planned for a step per micro-batch or process, but then it does not end before the run.
        spent = seen(case, "zero-learning-rate") is not None
        over = calls > 0 and (planned / calls < OVER_SHARE * made or (calls > 1.5 and spent))
        return Signature(
            (
                *when(
                    calls > 1.5,
                    CERTAIN if over else FAIR,
                    f"the scheduler is stepped {calls:.0f} times an update{', and the rate is 0 too early' * spent}",
                    "fact scheduler_steps_per_step",
                    invariant=over,
                    calls=calls,
                ),
                *when(
                    calls > 1.5 and over and not math.isnan(planned),
                    HINT,
                    f"its {planned:.0f} steps were over after {planned / calls:.0f} of {made:.0f} updates",
                    "fact scheduler_planned",
                ),
                *when(
                    short,
                    STRONG,
                    f"the schedule ends after {planned:.0f} of {steps:.0f} steps",
                    "fact scheduler_planned",
                ),
                *holds(case, "scheduler_before_optimizer", FAIR, "the scheduler is stepped before the optimizer"),
                *when(
                    jump_of_rate(case.window, case.onset) > 1.5 and fact(case, "scheduler") is not None,
                    HINT,
                    "the rate jumped under a scheduler",
                    "window learning_rate",
                ),
                *symptom(case, CERTAIN, *OF_THE_SCHEDULE),
                *(symptom(case, CERTAIN, "incomplete-resume", invariant=True) if begins_anew(case) else ()),
                *ruled_out(
                    surveyed(case)
                    and fact(case, "scheduler") is None
                    and seen(case, *OF_THE_SCHEDULE) is None
                    and not begins_anew(case),
                    "there is no scheduler",
                ),
                *ruled_out(
                    0.5 <= calls <= 1.5
                    and not short
                    and seen(case, *OF_THE_SCHEDULE) is None
                    and not begins_anew(case)
                    and fact(case, "scheduler_before_optimizer") is not True
                    and jump_of_rate(case.window, case.onset) < 1.5,
                    "the scheduler is stepped once an update",
                ),
            ),
        )


OVER_SHARE = 0.8
"""Share of the updates. A schedule may end a little before the run."""

OF_THE_SCHEDULE = (
    "zero-learning-rate",
    "idle-schedule",
    "spent-schedule",
    "mistimed-schedule",
    "opposite-metric",
    "negative-learning-rate",
)
