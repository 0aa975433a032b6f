"""Updates that rounding swallows."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, HINT, STRONG, Cause, Intervention, Signature
from steadytrain.diagnosis.interventions import HIGHER_RATE
from steadytrain.diagnosis.signs import (
    above,
    below,
    fact,
    first_name,
    listed,
    low_precision_weights,
    not_finite,
    noted,
    ruled_out,
    seen,
    surveyed,
    symptom,
)
from steadytrain.diagnosis.trial_effects import like
from steadytrain.statistics.script_rows import script_rows

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class LostUpdates(Cause):
    """Updates are smaller than half a unit in the last place of the weights, and rounding discards them.

    Means:
        A bfloat16 weight has 8 bits: an update below about 1/512 of it changes nothing. At a rate of 1e-5 some 84
        percent of Adam's updates are lost, at 1e-6 98 percent. Norm scales at exactly 1.0 stop changing first. The loss
        stagnates without an error.

    Causes:
        - weights in bfloat16 or float16 without a master copy in float32
        - a rate made for float32

    Next:
        1. Keep the weights in float32 and use autocast.
        2. Or stochastic rounding, or Kahan summation in the optimizer.
        3. Check that the share of weights that change becomes 1.
    """

    axis = "precision"
    base_rate = 9.0
    rivals = ("learning-rate-too-low", "frozen-parameters", "gradient-underflow", "parameters-not-in-optimizer")
    expects = like("half", removed=("master-weights",), either=("learning-rate-up",))
    confirming = ("float32", "master-weights")
    spared = ("learning-rate-third",)
    interventions = (
        Intervention(
            "float32-weights",
            2,
            "weights in float32, computed under autocast",
            "float32",
            code="model.float()  # and the forward under torch.autocast(dtype=torch.bfloat16)",
        ),
        HIGHER_RATE,
    )
    grade = "A"
    source = "2010.06192; torchtune #2254; pytorch #120376; measured for this project"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *above(
                    case,
                    "lost_update_share",
                    0.3,
                    CERTAIN,
                    f"{{value}} of the weights with an update did not change{_rounded(case)}",
                    invariant=True,
                ),
                *below(case, "lost_update_share", 0.1, -STRONG, "{value} of the weights with an update did not change"),
                *symptom(case, CERTAIN, "lost-updates"),
                *ruled_out(_moves(case), "over 64 updates nearly all weights move", "window script"),
                *listed(case, "lost_updates", HINT, "tensors that stand still: {names}"),
                *ruled_out(
                    surveyed(case) and not low_precision_weights(case) and seen(case, "lost-updates") is None,
                    "all weights are float32",
                ),
                *ruled_out(
                    bool(script_rows(case.window, "remainders-kept")),
                    "the optimizer keeps what was rounded away, and adds it to a later update",
                    "window script",
                ),
                *ruled_out(not_finite(case), "a lost update makes nothing infinite", "symptoms"),
            ),
            layer=first_name(case, "lost_updates"),
        )


def _moves(case: Case) -> bool:
    """Whether the run saw that what one update leaves in place moves over many."""
    found = noted(case, "lost-updates")
    return found is not None and found.numbers.get("moved") == 1.0


def _rounded(case: Case) -> str:
    """Which format rounds the updates away, where it is known."""
    kinds = [str(kind).removeprefix("torch.") for kind in fact(case, "parameter_dtypes") or ()]
    low = [kind for kind in kinds if kind in ("bfloat16", "float16")]
    return f": rounded away in {' and '.join(low)}" if low else ""
