"""A loss that is given something else than it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, FAIR, HINT, STRONG, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import listed, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class LossFunctionMisuse(Cause):
    """The loss function gets wrong inputs: probabilities for logits, swapped arguments, a wrong dimension.

    Means:
        `cross_entropy` takes logits and applies the softmax itself. Given probabilities it still falls, but cannot go
        below about `ln(1 + (C - 1) / e)`, and its gradient is small where the model is wrong. `nll_loss` given logits
        falls without bound. A softmax over the batch makes rows compete with each other.

    Causes:
        - softmax or sigmoid in the model and again in the loss
        - `nll_loss` or `kl_div` without a logarithm
        - input and target exchanged; `softmax(dim=0)`, in the loss or in attention

    Next:
        1. Check the named line: does it get logits, probabilities or log-probabilities?
        2. Remove the last softmax from the model, or use the loss that takes probabilities.
        3. Compare the first loss with `ln C`.
    """

    axis = "loss"
    base_rate = 4.0
    rivals = ("label-misalignment", "shape-broadcast", "learning-rate-too-low", "padding-in-loss", "infeasible-target")
    expects = like("script", removed=("loss-from-logits",))
    confirming = ("loss-from-logits",)
    spared = ("learning-rate-third", "float32")
    interventions = (
        Intervention(
            "loss-from-logits",
            5,
            "give the loss the inputs that it expects",
            "loss-from-logits",
            code="loss = cross_entropy(logits, targets)  # no softmax, sigmoid or log_softmax before it",
        ),
    )
    grade = "A"
    source = "documentation of torch.nn.functional; Karpathy, A recipe for training neural networks (2019)"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *listed(
                    case,
                    "probabilities_as_logits",
                    CERTAIN,
                    "probabilities go into a loss that takes logits: {names}",
                    invariant=True,
                ),
                *listed(
                    case,
                    "logits_as_log_probabilities",
                    CERTAIN,
                    "values other than log-probabilities go into a loss that takes those: {names}",
                    invariant=True,
                ),
                *listed(
                    case,
                    "loss_arguments_swapped",
                    CERTAIN,
                    "input and target of the loss are exchanged: {names}",
                    invariant=True,
                ),
                *listed(case, "softmax_dimension", CERTAIN, "softmax is taken over the batch: {names}", invariant=True),
                *symptom(case, STRONG, "misused-loss"),
                *symptom(case, FAIR, "misnormalized-attention"),
                *symptom(case, HINT, "plateau", "no-learning", "loss-collapse"),
            ),
        )
