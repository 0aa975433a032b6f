"""The temperature of a soft actor-critic has no level to settle at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.detectors import SourceRule


@final
@dataclass(frozen=True)
class RunawayTemperature(SourceRule):
    """The target entropy, or the loss of the temperature, has the wrong sign, so the temperature runs away.

    Means:
        Soft actor-critic adapts its temperature so that the entropy of the policy reaches a target. For actions in
        [-1, 1] that is minus the number of actions. The script sets plus that number, which such a policy cannot reach,
        or steps the temperature the other way round. It grows, or falls to 0, without end: the entropy term swamps the
        reward, or exploration stops.

    Causes:
        - `target_entropy = action_dim`, without the minus
        - `(log_alpha * (log_prob + target_entropy)).mean()`, without the minus before it

    Next:
        1. `target_entropy = -action_dim` and `-(log_alpha * (log_prob + target_entropy).detach()).mean()`.
        2. Watch the temperature: it settles within some thousand steps.
    """

    kind: ClassVar[str] = "runaway-temperature"
    says: ClassVar[str] = (
        "gives the target entropy, or the loss of the temperature (alpha), the wrong sign: the policy cannot reach "
        "that entropy, and the temperature grows or falls without end"
    )
