"""A loss that is given something else than it takes, or that has no minimum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, FAIR, HINT, STRONG, Cause, Intervention, Signature
from steadytrain.diagnosis.script_signs import unequal_terms
from steadytrain.diagnosis.signs import Signs, fact, listed, quiet, seen, surveyed, symptom, when
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class LossFunctionMisuse(Cause):
    """The loss gets wrong inputs, or a term of the wrong sign or reduction: probabilities for logits, sum beside mean.

    Means:
        `cross_entropy` takes logits and applies the softmax itself. Given probabilities it still falls, but cannot go
        below about `ln(1 + (C - 1) / e)`, and its gradient is small where the model is wrong. `nll_loss` given logits
        falls without bound, and so does a loss from which a term is subtracted that it should add (a divergence, a
        penalty, a distance): the model maximises that term, and a lower rate only delays it. A softmax over the batch
        makes rows compete with each other. A divergence that is summed over the latents outweighs a reconstruction that
        is averaged over the pixels by the number of pixels. A policy whose entropy is lowered stops exploring.

    Causes:
        - softmax or sigmoid in the model and again in the loss
        - `nll_loss` or `kl_div` without a logarithm
        - the wrong sign of a term: `rec - beta * kl`, an entropy or a margin that is added instead of subtracted
        - class weights that grow with how common a class is; several labels a row in a softmax cross-entropy
        - one term averaged over the elements of a row, the other summed over them (`mse_loss` beside a summed KL)
        - a term that is summed over the whole batch, and added to the value of each row
        - a divergence that is averaged over classes, or lacks the square of its temperature
        - input and target exchanged; `softmax(dim=0)`, in the loss or in attention
        - a correction for sampled negatives that is added to the scores instead of subtracted
        - learned weights of losses that nothing keeps from falling: `exp(-s) * loss` without `+ s`
        - logits that a metric compares with 0.5, as if they were probabilities
        - a Dice or IoU term that is computed of logits
        - a code that is drawn with `exp(logvar)` as its deviation, which its divergence takes for the variance

    Next:
        1. Check the named line: does it get logits, probabilities or log-probabilities?
        2. Remove the last softmax from the model, or use the loss that takes probabilities.
        3. Compare the first loss with `ln C`.
    """

    axis = "loss"
    base_rate = 4.0
    rivals = ("label-misalignment", "shape-broadcast", "learning-rate-too-low", "padding-in-loss", "infeasible-target")
    expects = like("script", removed=("loss-from-logits",), either=("old-settings",))
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
        Intervention(
            "same-reduction",
            5,
            "reduce all terms alike: sum both over the row, and take the mean over the batch",
            code="reconstruction = (output - x).pow(2).sum(-1).mean()  # as the KL term",
            of=("loss_reductions", "unequal-reductions"),
        ),
        Intervention(
            "temperature",
            5,
            "divide cosines by a temperature, or learn their scale",
            code="loss = cross_entropy(cosines / 0.07, targets)",
            of=("unscaled-cosines",),
        ),
        Intervention(
            "invert-weights",
            5,
            "weight each class by the inverse of its count",
            code="weight = counts.sum() / (len(counts) * counts)  # pos_weight = negatives / positives",
            of=("inverted-weights",),
        ),
        Intervention(
            "whole-divergence",
            5,
            "sum the divergence over the classes, and multiply it by the square of its temperature",
            code='kd = kl_div(log_softmax(scores / T, -1), softmax(teacher / T, -1), reduction="batchmean") * T * T',
            of=("diluted-divergence",),
        ),
        Intervention(
            "binary-for-each-class",
            5,
            "a sigmoid for each class where a row has several labels",
            code="loss = binary_cross_entropy_with_logits(scores, targets)",
            of=("many-hot",),
        ),
        Intervention(
            "sum-per-row",
            5,
            "sum over the values of each row, and take the mean over the rows last",
            code="loss = -(log_prob + log_det.sum(dim=1)).mean()  # log_det.sum() holds all rows of the batch",
            of=("batch-total",),
        ),
        Intervention(
            "turn-sign",
            5,
            "turn the sign of the term that is maximised, or bound it",
            code="loss = reconstruction + beta * divergence  # every term falls as the model gets better",
            of=("loss-turned-negative", "policy_entropy", "wrong-sign", "runaway-temperature"),
        ),
        Intervention(
            "subtract-correction",
            5,
            "subtract the log-probability of being sampled from the scores",
            code="scores = user @ item.T - log_q",
            of=("added-correction",),
        ),
        Intervention(
            "held-weights",
            5,
            "add the term that keeps the learned weights up",
            code="loss = (torch.exp(-s) * losses + s).sum()",
            of=("free-weights",),
        ),
        Intervention(
            "overlap-of-probabilities",
            5,
            "take the overlap of probabilities",
            code="prediction = torch.sigmoid(logits)  # or softmax(dim=1), before the Dice or IoU term",
            of=("overlap-of-logits",),
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
                    "the output of a softmax or sigmoid goes into a loss that takes logits: {names}",
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
                *symptom(
                    case,
                    CERTAIN,
                    "wrong-sign",
                    "free-weights",
                    "runaway-temperature",
                    "added-correction",
                    "overlap-of-logits",
                    invariant=True,
                ),
                *_without_bound(case),
                *_unequal_terms(case),
                *_entropy_lowered(case),
                *_misused(case),
                *symptom(case, CERTAIN, "unequal-reductions", "logit-threshold", "squared-spread", invariant=True),
                *symptom(case, CERTAIN, "inverted-weights", "diluted-divergence", invariant=True),
                *symptom(case, HINT, "plateau", "no-learning", "loss-collapse"),
            ),
        )


def _misused(case: Case) -> Signs:
    """What the graph of the loss shows. Cosines without a temperature, targets of several ones and sums over the batch
    are seen nowhere else, and where no survey ran nothing is."""
    found = seen(case, "misused-loss")
    own = found is not None and not found.numbers.keys().isdisjoint(("unscaled-cosines", "many-hot", "batch-total"))
    alone = own or not surveyed(case)
    return symptom(case, CERTAIN if alone else STRONG, "misused-loss", invariant=alone)


def _unequal_terms(case: Case) -> Signs:
    """A sign if a summed term outweighs an averaged one in a run that shows something."""
    found = unequal_terms(case)
    if not found or quiet(case):
        return ()
    worst = max(found, key=lambda one: float(one["heavier"]))
    text = (
        f"the reductions do not match: {worst['place']} {worst['line']} is summed over {worst['summed']:.0f} elements "
        f"of a row, the other is averaged over {worst['averaged']:.0f}, and so outweighed {worst['heavier']:.3g} times"
    )
    if seen(case, "unequal-reductions") is not None:
        text += ": so heavy a KL term collapses the code"
    return when(True, CERTAIN + FAIR, text, "fact loss_reductions", heavier=float(worst["heavier"]))


def _entropy_lowered(case: Case) -> Signs:
    """A sign if the loss of a policy gradient falls with the policy's entropy in every step."""
    found = fact(case, "policy_entropy")
    if not isinstance(found, Mapping) or found["lowered"] < found["steps"]:
        return ()
    text = f"the loss lowers the entropy of the policy in each step ({found['line']}): the sign of its bonus is wrong"
    return when(True, CERTAIN, text, "fact policy_entropy", steps=float(found["steps"]))


def _without_bound(case: Case) -> Signs:
    """A sign if the loss sinks below zero: faster and faster (no minimum), or from one step to the next."""
    found = seen(case, "loss-turned-negative")
    if found is None:
        return ()
    sinks = found.numbers.get("without_bound") == 1.0
    maximised = _maximised(case)
    where = f": {maximised}" if maximised else ": a term with the wrong sign, or without a hinge, is maximised"
    text = f"the loss has no lower bound{where}" if sinks else f"{found.message}{where if maximised else ''}"
    return when(True, CERTAIN if sinks else STRONG, text, "symptom loss-turned-negative", loss=found.numbers["loss"])


def _maximised(case: Case) -> str:
    """Which term of the loss sinks, with its line; "" if unknown."""
    found = fact(case, "loss_terms")
    terms = [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []
    worst = min(terms, key=lambda one: float(one["last"]) - float(one["first"]), default=None)
    if worst is None or not float(worst["last"]) < min(0.0, float(worst["first"])):
        return ""
    went = f"from {worst['first']:.4g} to {worst['last']:.4g}"
    return f"{worst['place']} {worst['line']} goes {went}, so it is maximised (wrong sign?) or has no bound"
