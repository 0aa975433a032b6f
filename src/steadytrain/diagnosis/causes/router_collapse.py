"""Experts that get everything or nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, FAIR, STRONG, Cause, Intervention, Signature
from steadytrain.diagnosis.script_signs import gets_rounding_alone
from steadytrain.diagnosis.signs import fact, fails, holds, ruled_out, seen, surveyed, symptom, when
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class RouterCollapse(Cause):
    """The router of a mixture of experts sends nearly all tokens to few experts.

    Means:
        A chosen expert learns, and so is chosen more often. Without balancing, a few experts take all tokens, the
        others stay untrained, and the model has the capacity of a small one; the router's logits grow without bound.

    Causes:
        - no balancing loss, or one that does not reach the router
        - a router in 16 bits; noise turned off too early
        - a capacity limit that drops the favourite's excess tokens

    Next:
        1. A balancing loss of 1e-2, or a bias per expert that moves against its load.
        2. The router in float32, a z-loss of 1e-3 on its logits.
        3. Watch the largest share and the entropy of the choice.
    """

    axis = "model"
    base_rate = 8.0
    rivals = ()
    expects = like("script", removed=("balance-router",))
    confirming = ("balance-router",)
    spared = ("drop-batch", "learning-rate-third")
    interventions = (
        Intervention(
            "balance-router",
            5,
            "a balancing loss on the router",
            "balance-router",
            code="loss = loss + 0.01 * experts * (share * probability).sum()  # share and mean probability per expert",
        ),
    )
    grade = "A"
    source = "2202.08906; 2408.15664; KempnerForge #117; minimind #567"

    def signature(self, case: Case) -> Signature:
        shares, experts = fact(case, "router_share"), fact(case, "router_experts")
        worst, whole = 0.0, None
        name: str | None = None
        if isinstance(shares, dict) and isinstance(experts, dict):
            worst, name = max(
                ((share * experts.get(router, 2), router) for router, share in shares.items()), default=(0.0, None)
            )
            whole = shares.get(name)
        return Signature(
            (
                *when(
                    worst > 2.5,
                    CERTAIN if whole is not None and whole > ALL_MIN else STRONG,
                    f"the favourite expert of {name} gets {worst:.2g} times its share",
                    "fact router_share",
                    load=worst,
                ),
                *fails(case, "router_balanced", FAIR, "nothing balances the router"),
                *holds(case, "router_balanced", -FAIR, "a balancing term reaches the router"),
                *symptom(case, STRONG, "expert-load-collapse"),
                *when(
                    seen(case, "reversed-straight-through") is not None,
                    -STRONG,
                    "the gradient of a choice is reversed by a line of the script, which balancing does not mend",
                    "symptoms",
                ),
                *ruled_out(gets_rounding_alone(case), "no gradient of the loss reaches a part of the model"),
                *ruled_out(
                    surveyed(case) and not shares and seen(case, "expert-load-collapse") is None, "there is no router"
                ),
            ),
            layer=name,
        )


ALL_MIN = 0.95
"""Share of the tokens from which on the other experts are useless, whatever balance was intended."""
