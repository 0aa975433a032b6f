"""Parameters that are set not to learn."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.detectors.frozen_parameters import ZERO_WEIGHTS
from steadytrain.diagnosis.cause import CERTAIN, FAIR, HINT, STRONG, Cause, Intervention, Sign, Signature
from steadytrain.diagnosis.signs import (
    Signs,
    enumerated,
    fact,
    first_name,
    listed,
    measured,
    not_finite,
    ruled_out,
    seen,
    surveyed,
    symptom,
    when,
)
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class FrozenParameters(Cause):
    """Parameters that should learn have `requires_grad` False, a gradient of exactly zero, or an update scaled to zero.

    Means:
        The optimizer holds them and they do not change. A frozen base under adapters is intended; a frozen adapter, or
        a whole frozen model, is not. If the gradient of a whole tensor is exactly zero, something multiplies it by
        zero. If zeros never move although their gradient is not zero, the optimizer scales each update by the norm of
        its weights (LAMB, LARS, relative steps): that of zeros is zero.

    Causes:
        - `requires_grad_(False)` that was meant for the base only (trl #3926), or was never undone
        - tokens added to a model whose embedding is frozen under adapters
        - adapters on modules that forward does not call
        - a factor of zero: a gate, a mask, a weight of a loss term
        - a trust ratio of LAMB or LARS without an exception for a norm of 0, and layers that begin at zero

    Next:
        1. List names, shapes and `requires_grad` of all parameters in the optimizer.
        2. Unfreeze the named parameters and check that the loss falls.
        3. Count trainable parameters before the first step.
    """

    axis = "model"
    base_rate = 6.0
    rivals = (
        "parameters-not-in-optimizer",
        "detached-graph",
        "lost-updates",
        "learning-rate-too-low",
        "gradient-underflow",
        "dead-units",
        "label-misalignment",
        "shape-broadcast",
    )
    expects = like("script", removed=("thaw",))
    confirming = ("thaw",)
    spared = ("learning-rate-up", "learning-rate-third")
    interventions = (
        Intervention(
            "thaw",
            5,
            "set requires_grad of what should learn",
            "thaw",
            code="for p in module.parameters(): p.requires_grad_(True)  # before the optimizer is made",
        ),
        Intervention(
            "train-new-rows",
            5,
            "train the rows of the new tokens",
            code='LoraConfig(trainable_token_indices=new_ids)  # or modules_to_save=["embed_tokens", "lm_head"]',
            of=("frozen-new-tokens",),
        ),
        Intervention(
            "trust-ratio-one",
            5,
            "a trust ratio of 1 where the norm of the weights or of the update is 0",
            code="trust = torch.where((w_norm > 0) & (u_norm > 0), w_norm / u_norm, 1.0)",
            of=(ZERO_WEIGHTS,),
        ),
    )
    grade = "A"
    source = "trl #3926, PR 4081; transformers #26334; unsloth #1282"

    def signature(self, case: Case) -> Signature:
        share = measured(case, "frozen_share")
        whole = _is_whole(case)
        return Signature(
            (
                *when(
                    share > 0.0,
                    CERTAIN if whole else HINT,
                    f"{share:.0%} of the parameters are frozen: {enumerated(fact(case, 'parameters_frozen') or ())}",
                    "fact frozen_share",
                    share=share,
                    invariant=whole,
                ),
                *listed(case, "parameters_zero_gradient", HINT, "gradients that are exactly zero: {names}"),
                *symptom(case, FAIR, "few-trained-parameters"),
                *symptom(case, CERTAIN, "frozen-adapters", "frozen-new-tokens", invariant=True),
                *_of_zeros(case),
                *symptom(case, HINT, "frozen-parameters", "no-learning", "plateau"),
                *listed(case, "parameters_not_in_optimizer", -FAIR, "parameters that no optimizer holds: {names}"),
                *listed(case, "parameters_without_gradient", -HINT, "parameters without a gradient: {names}"),
                *ruled_out(not_finite(case), "a frozen parameter makes nothing infinite", "symptoms"),
                *when(
                    surveyed(case)
                    and share == 0.0
                    and not fact(case, "parameters_zero_gradient")
                    and not fact(case, "parameters_without_gradient")
                    and not _of_zeros(case),
                    -STRONG,
                    "every parameter is trainable and has a gradient",
                    "fact frozen_share",
                ),
            ),
            layer=first_name(case, "parameters_frozen") or first_name(case, "parameters_zero_gradient"),
        )


def _of_zeros(case: Case) -> Signs:
    """Parameters that stay zero although they have a gradient, while the optimizer moves others."""
    found = seen(case, "frozen-parameters")
    if found is None or not found.numbers.get(ZERO_WEIGHTS):
        return ()
    names = enumerated(found.tensors)
    why = f"{names}: zero from the start, with a gradient and without an update"
    if fact(case, "optimizer") in OF_TORCH:  # none of these scales an update by the norm of the weights
        return (Sign(f"{why}, as at a learning rate of 0", HINT, "symptom frozen-parameters"),)
    known = fact(case, "optimizer") is not None
    what = f"{why}, so the optimizer scales updates by the norm of the weights (a trust ratio of 0)"
    weight = CERTAIN if known else FAIR
    return (Sign(what, weight, "symptom frozen-parameters", {ZERO_WEIGHTS: 1.0}, invariant=known),)


def _is_whole(case: Case) -> bool:
    """Whether almost nothing is left to train and it is not an adapter: adapters have matrices, and tuning of biases or
    norms covers all layers."""
    kinds = fact(case, "parameter_dtypes")
    tensors = sum(kinds.values()) if isinstance(kinds, dict) else 0
    share = measured(case, "frozen_share")
    return share == 1.0 or (share > WHOLE_SHARE and tensors <= FEW_TENSORS and fact(case, "update_ratio") is None)


OF_TORCH = frozenset(
    [
        *("Adadelta", "Adafactor", "Adagrad", "Adam", "Adamax", "AdamW", "ASGD", "LBFGS", "Muon", "NAdam", "RAdam"),
        *("RMSprop", "Rprop", "SGD", "SparseAdam"),
    ]
)
"""Optimizers of torch: a class of this name is taken for it."""

WHOLE_SHARE, FEW_TENSORS = 0.99, 2
"""Share of frozen elements: a base may be frozen by design, a whole model may not. So few trainable tensors are no
tuning method."""
