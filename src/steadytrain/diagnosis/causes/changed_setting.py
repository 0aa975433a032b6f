"""A number of the loss or the model that the script changed while it trained."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, HINT, Cause, Intervention, Signature
from steadytrain.diagnosis.script_signs import weighs_unequal_terms
from steadytrain.diagnosis.setting_signs import changed_settings
from steadytrain.diagnosis.signs import quiet, ruled_out, seen, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class ChangedSetting(Cause):
    """A number that the script changes while it trains became too large or too small.

    Means:
        A temperature, the weight of a loss or a penalty, a margin, or a momentum goes to another value at a step, by a
        plan of the script. Right there the loss, its gradient or the model's output is another one. Data, weights and
        rate are as before, and with the old number the run goes on.

    Causes:
        - a temperature that is annealed towards 0
        - the last stage of a warm-up of a KL or auxiliary weight, with a wrong factor
        - a gain or scale that grows by a factor in every step, without a bound
        - a warm-up of a weight that never ends: `step / warm_up` without `min(1.0, ...)`
        - a plan in epochs that is read in steps, or in percent

    Next:
        1. Print the number at each step.
        2. Keep the old value, and compare the loss some hundred steps later.
        3. Bound the plan at both ends, and move in small steps.
    """

    axis = "loss"
    base_rate = 3.0
    rivals = (
        "singular-operation",
        "learning-rate-too-high",
        "data-shift",
        "unclipped-gradients",
        "regularization-too-strong",
    )
    expects = like("script", removed=("old-settings",), either=("safe-operation",))
    confirming = ("old-settings",)
    evidence = ("fact settings_changed",)
    spared = ("drop-batch", "fresh-data", "float32")
    interventions = (
        Intervention(
            "old-settings",
            3,
            "the number that changed as it was before",
            "old-settings",
            code="temperature = max(temperature, 0.1)  # bound what the plan gives",
        ),
    )
    grade = "B"
    source = "2012.09740 on temperatures of contrastive losses; 1511.06349 and 1903.10145 on KL annealing"

    def signature(self, case: Case) -> Signature:
        changed = changed_settings(case, "other", CERTAIN)
        return Signature(
            (
                *changed,
                *symptom(case, CERTAIN, "growing-weight"),
                *symptom(case, HINT, "divergence", "loss-spike", "lost-progress", "exploding-gradients"),
                *ruled_out(quiet(case), "no symptom above a note was seen", "symptoms"),
                *ruled_out(
                    weighs_unequal_terms(case),
                    "the number weighs a term that outweighs the other one by its reduction, whatever the number",
                    "fact loss_reductions",
                ),
                *ruled_out(
                    not changed and seen(case, "growing-weight") is None,
                    "no such number was seen to change near the onset",
                ),
            )
        )
