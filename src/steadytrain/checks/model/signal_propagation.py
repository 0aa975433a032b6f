"""The size of activations and gradients from the first layer to the last."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

from torch import Tensor, nn

from steadytrain.checks.subject.model_check import (
    Check,
    Cost,
    Outcome,
    Subject,
    failed,
    not_run,
    passed,
    tensors_of,
    warned,
)
from steadytrain.checks.subject.short_training import few_rows, without_dropout
from steadytrain.core.plugins import threshold
from steadytrain.core.torch_private import PARAMETERS

BLOCKS_MIN = 2
ROWS_MAX = 8


@final
@dataclass(frozen=True)
class SignalPropagation(Check):
    """Activations and gradients keep their size through the depth of the model.

    Means:
        The check measures the root mean square of each block's output and of its gradient on the first batch. Both
        should stay within a factor of about ten from the first block to the last. If gradients vanish or explode
        through the depth, the first layers do not learn, or the first step destroys them.

    Causes:
        - an initialisation that does not fit the activation (a gain that is missing), in a network without norms
        - residual branches that are not scaled down in a deep model
        - recurrent weights with eigenvalues far from 1
        - a scale of attention or of embeddings that is missing or applied twice

    Next:
        1. Compare the ratios of the blocks: an outlier has a wrong initialisation.
        2. Without norms use an initialisation with the activation's gain; with residuals scale the last layer of each
           branch by 1 / sqrt(2 x depth).
    """

    cost: ClassVar[Cost] = "seconds"
    source: ClassVar[str] = "Glorot & Bengio 2010; He et al. 2015; GPT-2's scaled residual initialisation"

    block_ratio: float = threshold(5.0, "a block of a residual model that changes the size by more warns")
    warn_ratio: float = threshold(100.0, "between first and last block: more warns; plain models measured 1 to 20")
    fail_ratio: float = threshold(1e4, "between first and last block: more fails")

    def inspect(self, subject: Subject) -> Outcome:
        without_dropout(subject.model)
        names = _blocks(subject.model)
        if len(names) < BLOCKS_MIN:
            return not_run("the model has no two layers one after the other")
        outputs: dict[str, Tensor] = {}

        def note(name: str) -> Any:
            def after(module: nn.Module, args: Any, output: Any) -> None:
                tensor = next((t for t in tensors_of([output]) if t.is_floating_point() and t.requires_grad), None)
                if tensor is not None and name not in outputs:
                    tensor.retain_grad()
                    outputs[name] = tensor

            return after

        handles = [module.register_forward_hook(note(name)) for name, module in names.items()]
        try:
            loss = subject.loss(few_rows(subject.batches[0], ROWS_MAX))
            if loss.requires_grad:
                loss.backward()  # type: ignore[no-untyped-call]
        finally:
            for handle in handles:
                handle.remove()
        seen = {name: t for name, t in outputs.items() if t.grad is not None}
        if len(seen) < BLOCKS_MIN:
            return not_run("fewer than two layers gave outputs with gradients")
        sizes = {name: (_rms(t), _rms(t.grad)) for name, t in seen.items() if t.grad is not None}
        return self._judge(sizes)

    def _judge(self, sizes: dict[str, tuple[float, float]]) -> Outcome:
        names = list(sizes)
        forward, back = [sizes[n][0] for n in names], [sizes[n][1] for n in names]
        numbers: dict[str, Any] = {
            "blocks": {name: {"output_rms": one, "gradient_rms": other} for name, (one, other) in sizes.items()}
        }
        if not all(math.isfinite(value) for value in (*forward, *back)):
            return failed("activations or gradients are not finite in the first step", **numbers)
        if max(back) == 0.0:
            return failed("no gradient comes back to any layer", **numbers)
        up, down = _ratio(forward[-1], forward[0]), _ratio(back[0], back[-1])
        numbers |= {"output_ratio": up, "gradient_ratio": down}
        text = f"through {len(names)} layers outputs change by a factor of {up:.2g}, gradients back by {down:.2g}"
        worst = max(_apart(up), _apart(down))
        if worst > self.fail_ratio:
            return failed(text, **numbers)
        steps = [(_apart(_ratio(forward[at], forward[at - 1])), names[at]) for at in range(1, len(names))]
        sharpest, name = max(steps)
        if worst > self.warn_ratio:
            return warned(text, **numbers)
        if sharpest > self.block_ratio**2:
            return warned(f"{text}; {name} alone by {sharpest:.2g}", **numbers)
        return passed(text, **numbers)


def _blocks(model: nn.Module) -> dict[str, nn.Module]:
    """The blocks of the longest module list, or else all layers with weights except the last."""
    lists = [
        (name, module)
        for name, module in model.named_modules()
        if isinstance(module, (nn.ModuleList, nn.Sequential)) and len(module) >= BLOCKS_MIN and _alike(list(module))
    ]
    if lists:
        name, longest = max(lists, key=lambda one: len(list(one[1].children())))
        return {f"{name}.{at}": block for at, block in enumerate(longest.children())}
    layers = {name: module for name, module in model.named_modules() if _is_layer(module)}
    return dict(list(layers.items())[:-1]) if len(layers) > BLOCKS_MIN else layers


def _alike(blocks: Sequence[nn.Module]) -> bool:
    return len({type(block) for block in blocks}) == 1 and any(True for _ in _weights(blocks[0]))


def _weights(module: nn.Module) -> Iterator[Tensor]:
    return (p for p in module.parameters() if p.dim() >= 2)


def _is_layer(module: nn.Module) -> bool:
    own = [one for one in PARAMETERS.of(module).values() if one is not None]
    return not any(True for _ in module.children()) and any(one.dim() >= 2 for one in own)


def _rms(tensor: Tensor) -> float:
    return float(tensor.detach().double().square().mean().sqrt()) if tensor.numel() else 0.0


def _ratio(one: float, other: float) -> float:
    return one / other if other > 0.0 else (1.0 if one == 0.0 else math.inf)


def _apart(ratio: float) -> float:
    """Distance of a ratio from 1, as a factor of at least 1."""
    return math.inf if ratio == 0.0 else max(ratio, 1.0 / ratio)
