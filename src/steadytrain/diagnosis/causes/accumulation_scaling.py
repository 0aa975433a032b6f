"""Micro-batches that are not averaged."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, FAIR, STRONG, Cause, Intervention, Sign, Signature
from steadytrain.diagnosis.signs import fact, measured, noted, quiet, ruled_out, when
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class AccumulationScaling(Cause):
    """The loss of several micro-batches is summed where it should be averaged, or averaged with wrong weights.

    Means:
        Without division by their number the gradient grows with the number of micro-batches, as if the rate were that
        many times higher. A mean of means silently gives short micro-batches too much weight. One backward over the
        whole batch must give the same gradient.

    Causes:
        - `loss.backward()` in a loop without `loss / steps`
        - division twice: by the script and by a trainer (transformers PR 34191, unsloth #3006)
        - `reduction="sum"` with a rate made for the mean

    Next:
        1. Divide by the number of micro-batches, or sum over tokens and divide by their total.
        2. Compare the gradient of one batch with that of its halves: 1e-4 at most in float32.
        3. Compare the logged loss with that of a run without accumulation.
    """

    axis = "harness"
    base_rate = 12.0
    rivals = ("learning-rate-too-high", "missing-zero-grad")
    expects = like("script", removed=("accumulation-mean",), either=("accumulation-one",))
    confirming = ("accumulation-mean", "accumulation-one")
    spared = ("drop-batch", "float32")
    interventions = (
        Intervention(
            "accumulation-mean",
            6,
            "divide the loss by the number of micro-batches",
            "accumulation-mean",
            code="(loss / micro_batches).backward()",
        ),
    )
    grade = "A"
    source = "transformers PR 34191, #37766, PR 35438; axolotl #1100; unsloth #3006"

    def signature(self, case: Case) -> Signature:
        backwards, divisor = measured(case, "backwards_per_step"), measured(case, "loss_divisor")
        # Losses of several kinds have their own backward lines: real and false samples, for example.
        a_line = backwards / max(1.0, measured(case, "backward_lines")) if fact(case, "backward_lines") else backwards
        by_hand = fact(case, "gradients_rescaled") is True
        undivided = a_line > 1.5 and fact(case, "loss_divided") is False and not by_hand
        # The rate may have been chosen for the sum, so it is a fault only if something went wrong.
        wrong = not quiet(case)
        twice = backwards > 1.5 and divisor > 1.5 * backwards
        return Signature(
            (
                *when(
                    undivided,
                    CERTAIN if wrong else FAIR,
                    f"{backwards:.0f} backward calls an update, and the loss is not divided",
                    "fact loss_divided",
                    invariant=wrong,
                ),
                *_summed(case),
                *when(
                    twice,
                    STRONG,
                    f"{backwards:.0f} backward calls an update, and the loss is divided by {divisor:.0f}",
                    "fact loss_divisor",
                ),
                *when(
                    backwards > 1.5 and fact(case, "loss_sum") is True,
                    FAIR,
                    "the loss is a sum over the batch",
                    "fact loss_sum",
                ),
                *ruled_out(backwards <= 1.5, "there is one backward an update, so nothing is accumulated"),
                *ruled_out(by_hand and not twice, "the script divides the gradients by hand before the update"),
                *ruled_out(
                    fact(case, "loss_divided") is True and not twice and fact(case, "loss_sum") is not True,
                    "the loss is divided by the number of micro-batches",
                ),
            ),
        )


def _summed(case: Case) -> tuple[Sign, ...]:
    """A sign if the run itself saw a sum of gradients, which is a note there."""
    found = noted(case, "summed-gradients")
    return () if found is None else (Sign(found.message, FAIR, "symptom summed-gradients"),)
