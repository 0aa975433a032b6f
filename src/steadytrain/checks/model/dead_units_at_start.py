"""Units that are off for every example before training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from steadytrain.checks.subject.model_check import Check, Cost, Outcome, Subject, failed, not_run, passed, warned
from steadytrain.core.plugins import threshold

RECTIFIERS = frozenset({"relu", "relu_", "relu6", "hardtanh", "threshold", "clamp_min", "hardswish"})
POINTS_MIN = 64
LAYERS_MAX = 256


@final
@dataclass(frozen=True)
class DeadUnitsAtStart(Check):
    """Few rectified units output 0 for every example of the first batches.

    Means:
        A unit whose rectifier outputs 0 for every example has no gradient, and learns only if the layers before it
        change. A few are usual. Many in one layer mean that its pre-activations are nearly all negative: large negative
        biases, inputs that are not centred, or a far too large initialisation.

    Causes:
        - inputs that are not normalised, or normalised twice
        - negative initial biases, or a shift before the rectifier
        - a rectifier after a layer whose outputs are all negative (a second rectifier, a log)

    Next:
        1. Normalise the inputs, and begin with biases of 0.
        2. Check the layer before the named one: the mean of its outputs should be near 0.
    """

    cost: ClassVar[Cost] = "free"
    source: ClassVar[str] = "He et al. 2015; Lu et al. 2019, Dying ReLU and initialization"

    warn_share: float = threshold(0.3, "of a layer's units; healthy ones measured 0 to 0.15")
    fail_share: float = threshold(0.8, "of a layer's units: it passes hardly anything on")

    def inspect(self, subject: Subject) -> Outcome:
        seen: dict[int, tuple[str, Tensor, int]] = {}
        for batch in subject.batches:
            with torch.no_grad(), _Rectified() as watch:
                subject.look(batch)
            for number, (name, alive, points) in enumerate(watch.layers):
                if number in seen and seen[number][1].shape == alive.shape:
                    before = seen[number]
                    seen[number] = (name, before[1] | alive, before[2] + points)
                elif number not in seen:
                    seen[number] = (name, alive, points)
        if not seen:
            return not_run("the model has no rectified layer")
        enough = [(name, alive) for name, alive, points in seen.values() if points >= POINTS_MIN]
        if not enough:
            return not_run(f"fewer than {POINTS_MIN} examples were seen: a unit may be off in so few by chance")
        shares = [(float((~alive).double().mean()), number, name) for number, (name, alive) in enumerate(enough)]
        worst, number, name = max(shares)
        numbers: dict[str, Any] = {"dead_share": [share for share, _, _ in shares], "layers": len(enough)}
        text = f"{worst:.0%} of the units of rectifier {number + 1} of {len(enough)} ({name}) are off for every example"
        if worst >= self.fail_share:
            return failed(text, **numbers)
        if worst >= self.warn_share:
            return warned(text, **numbers)
        return passed(f"at most {worst:.0%} of a rectified layer's units are off for every example", **numbers)


class _Rectified(TorchFunctionMode):
    """The rectifiers of one forward in order: name, which units were on for any example, number of examples."""

    def __init__(self) -> None:
        super().__init__()
        self.layers: list[tuple[str, Tensor, int]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        numbers = isinstance(result, Tensor) and result.is_floating_point() and result.dim() >= 2
        if name in RECTIFIERS and numbers and len(self.layers) < LAYERS_MAX:
            self.layers.append((name, *_units(result.detach())))
        return result


def _units(values: Tensor) -> tuple[Tensor, int]:
    """Which units were on for any example. Units are channels: dimension 1 of images, otherwise the last dimension."""
    units = values.movedim(1, -1) if values.dim() >= 4 else values
    flat = units.reshape(-1, units.shape[-1])
    return (flat > 0).any(dim=0), len(flat)
