"""A balancing loss on the router."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.paired_runs import both, evens_out
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Outcome, Spec, Verdict
from steadytrain.experiments.trial import Trial


@final
class BalanceRouter(Trial):
    """A router with a balancing bias.

    Changes:
        The router's logits get a bias for each expert, which moves against its load after every step (loss-free
        balancing, 2408.15664, but much faster). A second run only measures the favourite's load.

    Tells:
        A router that sends nearly all tokens to few experts because nothing balances it, and the cost of that: the
        probes with a balanced load against those without.

    Beware:
        The bias balances the load by construction. Untrained experts make the loss worse at first, so a rise of the
        probes within a trial does not predict a longer run.
    """

    axis = "model"
    fix = 1
    own_control = True

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        routers = case.facts.get("router_share")
        if not isinstance(routers, dict) or not routers:
            return NotApplicable("no router of a mixture of experts was seen, or no survey ran")
        names = [str(name) for name in routers]
        longer = case.following(max(case.steps_after, STEPS_MIN))
        plans = [
            planned(self, longer, Change("balance-router", {"routers": names, "speed": speed}))
            for speed in (0.0, SPEED)
        ]
        return both(plans)

    def judge(self, case: Case, controls: Sequence[Outcome], outcomes: Sequence[Outcome]) -> Verdict:
        """Judge by the load of the favourite expert at the end, with and without the bias."""
        return evens_out(self.name, outcomes)


STEPS_MIN = 40
"""Minimum steps of the trial: a collapse is detected long after it began, so the lead does not say how long it takes to
end.
"""

SPEED = 0.3
"""Change of the bias in one step, in spreads of the logits per excess fair share. A favourite expert with a planted
bias of two evened out within ten of the forty steps."""
