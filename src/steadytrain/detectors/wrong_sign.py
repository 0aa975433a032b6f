"""A term of the loss that is driven the wrong way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.detectors import SourceRule


@final
@dataclass(frozen=True)
class WrongSign(SourceRule):
    """A term of the loss has the wrong sign, so training makes it worse.

    Means:
        The source of the script minimises what is to be maximised, or the other way round: log-probabilities times
        advantages, the entropy of a policy, or the divergence of a code from its prior. The sign was followed through
        sums, means, coefficients and functions of the script up to the backward.

    Causes:
        - `(log_prob * advantage).mean()` without a minus: the policy learns what pays least
        - `loss = policy_loss + 0.01 * entropy`: the policy stops exploring
        - `0.5 * (1 + logvar - mu**2 - logvar.exp())` without the minus: the code runs away from its prior

    Next:
        1. Change the sign of the term, and print it: it has to move the right way.
        2. Write down for each term whether it is to fall or to rise.
    """

    kind: ClassVar[str] = "wrong-sign"
    says: ClassVar[str] = (
        "minimises a loss in which a term has the wrong sign: a policy objective, an entropy bonus or a divergence"
    )
