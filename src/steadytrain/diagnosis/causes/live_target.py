"""A target or an advantage carries the gradient of the network that is trained."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, HINT, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import ruled_out, seen, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class LiveTarget(Cause):
    """A target or an advantage carries the gradient of the network that is trained.

    Means:
        A bootstrapped target is meant to stand still while the prediction moves towards it. With a gradient of its own
        it moves towards the prediction, too, and an advantage with one lets the loss of the policy change the critic.
        Learning is slow or goes astray. The old log-probability of a policy ratio is such a reference, too: computed
        anew in each update, it moves with the policy, and the clip never acts.

    Causes:
        - a target that is computed outside of `no_grad()` by the network itself
        - an advantage in the loss of the policy without `detach()`
        - the old log-probability of PPO computed in the update, and not stored at the rollout

    Next:
        1. Detach it, or compute it under `no_grad()`.
        2. Compare the gradient norm of the critic with and without the loss of the policy.
    """

    axis = "loss"
    base_rate = 1.0
    rivals = ("bootstrap-past-end", "learning-rate-too-high")
    expects = like("script")
    spared = ("drop-batch", "float32")
    interventions = (
        Intervention(
            "detach-target",
            4,
            "detach the target, or the advantage",
            code="target = reward + gamma * (1 - done) * q(next_state).max(1).values.detach()",
        ),
        Intervention(
            "stored-log-probability",
            4,
            "store the log-probability when the action is drawn",
            code="ratio = (log_prob - rollout.log_prob).exp()",
            of=("unit-ratio",),
        ),
    )
    grade = "B"
    source = "1312.5602; Sutton and Barto, Reinforcement Learning, 2nd edition, 11.5 (the naive residual gradient)"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *symptom(case, CERTAIN, "live-target", "unit-ratio", invariant=True),
                *symptom(case, HINT, "no-learning", "plateau"),
                *ruled_out(
                    seen(case, "live-target", "unit-ratio") is None,
                    "no target carries a gradient that the source shows",
                ),
            )
        )
