"""Whether the derivatives in a loss are those of a model that is linear in pieces.

A derivative that keeps its graph leaves the backward of each activation in the graph of the loss: that of a ReLU is a
step, whose own derivative is zero wherever it exists. Inputs that pass through sines first (Fourier features) have
curvature of their own; their derivative shows both the sine and the cosine, which a given sine of the inputs does not.
"""

from __future__ import annotations

from collections.abc import Set

STEPS = frozenset({"ThresholdBackward", "LeakyReluBackward", "PreluKernelBackward", "HardtanhBackward"})
CURVED = frozenset(
    f"{name}Backward"
    for name in ("Tanh", "Sigmoid", "Silu", "Gelu", "Softplus", "Elu", "Mish", "Hardswish", "LogSigmoid", "Softmax")
) | {"NativeLayerNorm", "NativeGroupNorm", "NativeBatchNorm"}
ENCODED = frozenset({"Sin", "Cos"})
KINDS = STEPS | CURVED | ENCODED


def is_flat(kinds: Set[str]) -> bool:
    """Whether operations of these kinds, of :data:`KINDS`, hold derivatives of steps and nothing curved."""
    return bool(kinds & STEPS) and not kinds & CURVED and not kinds >= ENCODED
