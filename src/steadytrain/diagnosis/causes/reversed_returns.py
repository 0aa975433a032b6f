"""Discounted returns are in the order of the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, HINT, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import ruled_out, seen, symptom
from steadytrain.diagnosis.trial_effects import like
from steadytrain.experiments.trial_tables.updates import RATE_CUTS

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class ReversedReturns(Cause):
    """Discounted returns are built from the last step backwards and never put back in time order.

    Means:
        The return of the last step stands first. Actions and observations stand in time order, so each action is
        rewarded for what followed another one: the first of an episode gets the smallest return, and the last, which
        led to its end, the largest.

    Causes:
        - a list that is appended to in a loop over the reversed rewards, and not reversed after it
        - a list that is turned round twice

    Next:
        1. Print the returns of one episode with rewards of 1: they have to fall towards its end.
        2. Turn the list round once, per episode.
    """

    axis = "loss"
    base_rate = 1.0
    rivals = ("bootstrap-past-end", "loss-function-misuse", "learning-rate-too-low")
    # The loss of a policy says nothing of what it gains, and smaller steps change it.
    expects = like("script", either=(*RATE_CUTS, "learning-rate-up", "longer-warmup", "rewarm", "beta2-lower", "clip"))
    spared = ("drop-batch", "float32")
    interventions = (
        Intervention(
            "turn-returns",
            4,
            "put the returns back in time order",
            code="returns.reverse()  # or fill the list from the front: returns.insert(0, total)",
        ),
    )
    grade = "B"
    source = "Sutton and Barto 2018, section 3.3; the REINFORCE of pytorch/examples"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *symptom(case, CERTAIN, "reversed-returns", invariant=True),
                *symptom(case, HINT, "no-learning", "plateau", "divergence"),
                *ruled_out(seen(case, "reversed-returns") is None, "no returns are left in the order of the end"),
            )
        )
