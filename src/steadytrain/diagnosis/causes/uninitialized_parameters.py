"""Weights that are what memory held."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, HINT, STRONG, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import enumerated, fact, first_name, listed, seen, surveyed, symptom, when
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class UninitializedParameters(Cause):
    """Parameters were never given their values: not initialised, or passed over when weights were loaded.

    Means:
        `torch.empty`, or a key that was missing when weights were loaded, leaves zeros, subnormal or huge numbers. The
        values differ from run to run and are sometimes all zero. No training cures a weight of 1e30. Parameters that a
        load passed over because of their names hold the values that they were made with, and training begins anew.

    Causes:
        - a new head or token that the loaded weights do not have (transformers #46002, #30953)
        - a checkpoint with other names (`module.`, `_orig_mod.`) that is loaded with `strict=False`
        - `to_empty` on a meta device without `reset_parameters`
        - a parameter made with `torch.empty` in a custom module

    Next:
        1. Initialise the named parameters.
        2. Check the missing keys when weights are loaded; load strictly.
        3. Fill empty memory with NaN in a test: `torch.use_deterministic_algorithms(True)`.
    """

    axis = "model"
    base_rate = 10.0
    rivals = ("bad-initialization", "nonfinite-input", "tokenizer-mismatch", "token-out-of-range", "missing-warmup")
    expects = like("script", removed=("reinitialize",))
    confirming = ("reinitialize",)
    spared = ("drop-batch", "float32")
    interventions = (
        Intervention(
            "reinitialize",
            5,
            "initialise the uninitialised parameters",
            "reinitialize",
            code="torch.nn.init.kaiming_uniform_(layer.weight, a=5**0.5)",
        ),
    )
    grade = "A"
    source = "transformers #46002, #30953, #40001; nanochat PR 686; TransformerLens #902"

    def signature(self, case: Case) -> Signature:
        strange = fact(case, "parameters_strange")
        known = {name: float(value) for name, value in strange.items()} if isinstance(strange, dict) else {}
        wild = {name: value for name, value in known.items() if not WILD_MIN <= abs(value) <= WILD_MAX}
        return Signature(
            (
                *when(
                    bool(wild),
                    CERTAIN,
                    f"values that no initialisation gives: {enumerated(wild)}",
                    "fact parameters_strange",
                    invariant=True,
                    largest=max(wild.values(), default=0.0),
                ),
                *listed(case, "parameters_strange", HINT, "values that few initialisations give: {names}"),
                *when(
                    bool(fact(case, "parameters_nonfinite")) and case.onset <= EARLY_STEPS,
                    CERTAIN,
                    f"not finite at the first step: {enumerated(fact(case, 'parameters_nonfinite') or ())}",
                    "fact parameters_nonfinite",
                    invariant=True,
                ),
                *symptom(case, CERTAIN, "unloaded-weights"),
                *symptom(case, HINT, "nonfinite-weight", "exploding-gradients"),
                *when(
                    surveyed(case)
                    and not fact(case, "parameters_strange")
                    and not fact(case, "parameters_nonfinite")
                    and seen(case, "unloaded-weights") is None,
                    -STRONG,
                    "all parameters begin with usual values",
                    "fact parameters_strange",
                ),
            ),
            layer=first_name(case, "parameters_strange") or first_name(case, "parameters_nonfinite"),
        )


EARLY_STEPS = 16

WILD_MIN, WILD_MAX = 1e-30, 1e6
"""Uninitialised memory is mostly far outside this range. A constant of some thousands may be intended."""
