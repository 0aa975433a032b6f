"""A custom operation with a wrong result or gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

from steadytrain.diagnosis.cause import CERTAIN, FAIR, HINT, STRONG, Cause, Intervention, Signature
from steadytrain.diagnosis.interventions import EXAMPLE, MATH_ATTENTION
from steadytrain.diagnosis.signs import equivalence, fact, layer_of, listed, operation, ruled_out, surveyed, when
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class CustomOperationFault(Cause):
    """A custom operation gives a wrong result, or its backward a gradient that is not its derivative.

    Means:
        Nothing checks what a hand-written backward returns. A wrong one often still points roughly downhill, so
        training continues but is worse, or diverges where the error is large. The same operation in plain torch shows
        the difference.

    Causes:
        - backward lacks a factor, a mask or a saved tensor
        - a kernel for other shapes, strides or dtypes; a wheel built for another torch (bitsandbytes #663)
        - fused losses whose gradient is already scaled (Liger #512, #968)
        - a buffer that the context keeps as an attribute, and that a later call of the operation writes into

    Next:
        1. `torch.autograd.gradcheck` in float64 on the named operation.
        2. Replace it with plain operations and check that the symptom goes away.
        3. Report it with a minimal example.
    """

    axis = "model"
    base_rate = 22.0
    rivals = (
        "compiled-code-mismatch",
        "singular-operation",
        "fully-masked-attention",
        "hardware-fault",
        "learning-rate-too-high",
        "bad-initialization",
    )
    expects = like("kernel", removed=("reference-operation",), either=("math-attention", "own-contexts"))
    confirming = ("reference-operation", "math-attention", "own-contexts")
    spared = ("learning-rate-third",)
    interventions = (
        MATH_ATTENTION,
        Intervention(
            "reference-operation",
            5,
            "plain operations in place of the custom one",
            "reference-operation",
            code="y = plain(x)  # the same forward in operations of torch, which derives its backward",
        ),
        Intervention(
            "own-contexts",
            1,
            "let `ctx.save_for_backward` keep what the backward reads, or a copy of it",
            "own-contexts",
            code="ctx.save_for_backward(x)  # in place of ctx.x = buffer",
        ),
        EXAMPLE,
    )
    grade = "A"
    source = "Liger #512, #968; flash-attention #334; bitsandbytes #663"

    def signature(self, case: Case) -> Signature:
        errors = fact(case, "custom_gradient_error")
        worst = max(errors.items(), key=lambda item: item[1], default=None) if isinstance(errors, dict) else None
        name, error = worst if worst is not None else ("", 0.0)
        wrong, kept = error > 0.01, case.entries("overwritten_contexts")
        return Signature(
            (
                *equivalence(
                    when(
                        wrong,
                        CERTAIN,
                        f"backward of {name} is off by {error:.2g} of its derivative",
                        "fact custom_gradient_error",
                        invariant=True,
                    )
                ),
                *when(
                    bool(kept),
                    CERTAIN,
                    _overwritten(kept),
                    "fact overwritten_contexts",
                    invariant=True,
                ),
                *when(
                    worst is not None and not wrong and not kept,
                    -STRONG,
                    "backward of the custom operations is their derivative",
                    "fact custom_gradient_error",
                ),
                *listed(case, "custom_operations", HINT, "custom operations: {names}"),
                *operation(
                    case,
                    FAIR,
                    "{operation} is no operation of torch",
                    lambda found: not found.operation.startswith(("aten.", "prims.")),
                ),
                *ruled_out(surveyed(case) and not fact(case, "custom_operations"), "no custom operation was called"),
            ),
            layer=name if wrong else layer_of(case),
        )


def _overwritten(kept: Sequence[Mapping[str, Any]]) -> str:
    """Which memory was overwritten; "" if none was."""
    if not kept:
        return ""
    one = kept[0]
    return (
        f"{one['operation']} keeps `ctx.{one['attribute']}` for its backward in memory that was overwritten before the "
        f"backward read it, in {one['applications']} applications; `ctx.save_for_backward` would have refused that"
    )
