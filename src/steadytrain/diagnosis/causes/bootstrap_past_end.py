"""Values are bootstrapped from the next state where the episode ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, HINT, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import ruled_out, seen, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class BootstrapPastEnd(Cause):
    """Values are bootstrapped from the next state where the episode ended.

    Means:
        At the end of an episode nothing follows: its value is the reward alone. Bootstrapped from the state after it,
        often the first one of the next episode, an end costs nothing, and the policy does not learn to avoid it.
        Values drift up to the reward over 1 - gamma.

    Causes:
        - a target without `(1 - done)`
        - generalized advantages that are carried over an end
        - `truncated` stored as `done`, and `terminated` not

    Next:
        1. Multiply by `1 - done` both the next value and what is carried over.
        2. Compare values with the largest return that an episode can have.
    """

    axis = "loss"
    base_rate = 1.0
    rivals = ("label-misalignment", "learning-rate-too-low")
    expects = like("script")
    spared = ("drop-batch", "float32")
    interventions = (
        Intervention(
            "mask-ends",
            4,
            "multiply what is bootstrapped by 1 - done",
            code="target = reward + gamma * (1 - done) * next_value",
        ),
        Intervention(
            "store-terminated",
            4,
            "store `terminated` for the target, and end the episode at either flag",
            code="memory.push(state, action, reward, following, terminated)",
            of=("limit-as-end",),
        ),
    )
    grade = "B"
    source = "1312.5602, algorithm 1; 1506.02438"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *symptom(case, CERTAIN, "unused-episode-end", "limit-as-end", invariant=True),
                *symptom(case, HINT, "no-learning", "plateau", "divergence", "exploding-gradients"),
                *ruled_out(
                    seen(case, "unused-episode-end", "limit-as-end") is None,
                    "no value is bootstrapped past an end that the script knows of",
                ),
            )
        )
