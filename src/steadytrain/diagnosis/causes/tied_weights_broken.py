"""Two weights that should be one."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, STRONG, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import fact, listed, ruled_out, surveyed, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class TiedWeightsBroken(Cause):
    """The embedding and the head were one tensor and are now two.

    Means:
        After a load, a wrap or a replacement they train separately: the head learns and the embedding hardly does, or
        one of them is not in the optimizer or not saved. Both must share one address.

    Causes:
        - the head was reassigned, resized, or loaded under its own key
        - a wrapper or a move between devices that copies each parameter

    Next:
        1. Compare `data_ptr()` of both before the first step.
        2. Tie again after loading and wrapping: `head.weight = embedding.weight`.
        3. Create the optimizer after that.
    """

    axis = "model"
    base_rate = 2.0
    rivals = ("parameters-not-in-optimizer",)
    expects = like("script", removed=("retie",))
    confirming = ("retie",)
    spared = ("learning-rate-third",)
    interventions = (
        Intervention(
            "retie",
            5,
            "make both one parameter again",
            "retie",
            code="model.head.weight = model.embedding.weight  # after weights are loaded or moved",
        ),
    )
    grade = "A"
    source = "transformers on tie_weights; nanoVLM #187"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *listed(case, "tied_broken", CERTAIN, "should be one tensor but are two: {names}", invariant=True),
                *symptom(case, STRONG, "untied-weights"),
                *ruled_out(
                    surveyed(case) and not fact(case, "tied_broken"), "all weights that should be tied are tied"
                ),
            ),
            layer=_pair(case),
        )


def _pair(case: Case) -> str | None:
    pairs = fact(case, "tied_broken")
    return (
        " and ".join(map(str, pairs[0])) if isinstance(pairs, list) and pairs and isinstance(pairs[0], list) else None
    )
