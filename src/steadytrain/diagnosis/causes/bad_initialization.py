"""Weights that begin at the wrong size."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import FAIR, HINT, STRONG, Cause, Intervention, Signature
from steadytrain.diagnosis.depth_signs import SILENT_MAX, deepened
from steadytrain.diagnosis.interventions import LONGER_WARMUP, NORM
from steadytrain.diagnosis.signs import (
    above,
    below,
    fact,
    first_name,
    largest_input,
    listed,
    measured,
    noted,
    symptom,
    when,
)
from steadytrain.diagnosis.trial_effects import like
from steadytrain.experiments.trials.he_initialization import FADED

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class BadInitialization(Cause):
    """The initial weights are too large, too small, all zero or all equal.

    Means:
        Activations grow or vanish from layer to layer, and gradients with them. Equal rows stay equal forever. A
        classifier must begin at a loss of about `ln C`; half a nat above that, its initial logits are too large.

    Causes:
        - a scale that ignores the fan-in; depth without a residual scale
        - zeros that do not break the symmetry (LoRA on all-zero weights, needle #53)
        - an initialisation that a later one overwrites, or that a wrapper skips

    Next:
        1. Compare the first loss with `ln C`.
        2. Look at activations and gradients over depth at step 1: ratios between 0.1 and 10.
        3. Initialise the named tensors again (scaled by the root of the fan-in), or put a norm before the layer.
    """

    axis = "model"
    base_rate = 4.0
    rivals = (
        "uninitialized-parameters",
        "missing-warmup",
        "learning-rate-too-high",
        "learning-rate-too-low",
        "normalization-misuse",
        "dead-units",
        "weight-decay-misuse",
        "tokenizer-mismatch",
        "frozen-parameters",
    )
    expects = like("script", removed=("he-initialization",), either=("reinitialize",))
    confirming = ("he-initialization", "reinitialize")
    spared = ("drop-batch", "float32")
    interventions = (
        LONGER_WARMUP,
        Intervention(
            "reinitialize",
            5,
            "initialise the named layers by their fan-in",
            "reinitialize",
            code="torch.nn.init.kaiming_uniform_(layer.weight, a=5**0.5)",
        ),
        Intervention(
            "he-initialization",
            5,
            "initialise layers with a ReLU so that they keep the size of their signal",
            "he-initialization",
            code='torch.nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")',
        ),
        NORM,
    )
    grade = "A"
    source = "Karpathy, A recipe for training neural networks (2019); Fixup 1901.09321; needle #53"

    def signature(self, case: Case) -> Signature:
        excess = _excess(case) if largest_input(case) < LARGE_INPUT else math.nan
        return Signature(
            (
                *listed(
                    case,
                    "initial_scale",
                    STRONG,
                    "at the first step the scale over 1/sqrt(fan-in) is out of bounds: {names}",
                ),
                *listed(case, "equal_rows", STRONG, "all rows are equal at the first step: {names}", invariant=True),
                *listed(case, "parameters_zero", HINT, "all zero at the first step: {names}"),
                *when(
                    excess > 0.5 and fact(case, "state_loaded") is not True,
                    STRONG if excess > FAR_NATS else FAIR,
                    f"the first loss is {excess:.2g} nats above a guess",
                    "fact initial_loss",
                    invariant=excess > 2 * FAR_NATS and noted(case, "loss-above-guess") is not None,
                ),
                *above(
                    case,
                    "gradient_ratio",
                    1e3,
                    FAIR,
                    "gradients of the first layer are {value} times those of the last",
                ),
                *below(
                    case,
                    "gradient_ratio",
                    1e-3,
                    FAIR,
                    "gradients of the first layer are {value} times those of the last",
                ),
                *above(case, "activation_ratio", 1e2, FAIR, "the last layer's output is {value} times the first's"),
                *below(
                    case,
                    "activation_ratio",
                    FADED,
                    STRONG if 0 < measured(case, "activation_ratio") < SILENT_MAX else FAIR,
                    "the last layer's output is {value} times the first's",
                ),
                *(replace(sign, weight=-sign.weight) for sign in deepened(case)),
                *symptom(case, FAIR, "vanishing-gradients", "exploding-gradients", "loss-above-guess"),
                *listed(case, "parameters_strange", -STRONG, "values that no initialisation gives: {names}"),
                *when(
                    case.onset > 500 and not fact(case, "initial_scale"),
                    -FAIR,
                    f"it began at step {case.onset}",
                    "symptoms",
                ),
            ),
            layer=first_name(case, "initial_scale") or first_name(case, "equal_rows"),
        )


def _excess(case: Case) -> float:
    """The first loss above that of a guess: of the survey, else of the run itself. NaN if unknown."""
    found = measured(case, "initial_loss") - measured(case, "uniform_loss")
    above = noted(case, "loss-above-guess")
    if math.isnan(found) and above is not None:
        return above.numbers["initial_loss"] - above.numbers["level"]
    return found


LARGE_INPUT = 100.0
"""Root mean square of a feature from which on the size of the logits says nothing about the weights."""

FAR_NATS = 2.0
"""Distance above a uniform guess. No label or token explains a first loss that high, only logits that are too large."""
