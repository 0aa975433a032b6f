"""The last batch once more through the model, after the last step: leaks between positions and rows.

Random numbers are drawn and buffers move, which no longer matters: the process ends right after it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from steadytrain.capture.recorder import MicroBatch
from steadytrain.lab.surveying.calls import Calls, LossCall
from steadytrain.lab.surveying.compiled import compiled
from steadytrain.lab.surveying.outputs import first_output

POSITIONS_MIN = 4
WIDTH_MIN = 2
DIFFERENCE = 1e-6


def custom_operations(calls: Calls) -> dict[str, Any]:
    """Backwards written by hand against finite differences, along one direction in float64."""
    names, errors = [], {}
    for kind, given in calls.applied.items():
        names.append(kind.__name__)
        error = _backward_error(kind, given)
        if error is not None:
            errors[kind.__name__] = error
    return {"custom_operations": names, "custom_gradient_error": errors} if names else {}


def _backward_error(kind: Any, given: tuple[Any, ...]) -> float | None:
    chance = torch.Generator().manual_seed(0)
    wide = [v.double().requires_grad_() if isinstance(v, Tensor) and v.is_floating_point() else v for v in given]
    leaves = [value for value in wide if isinstance(value, Tensor) and value.requires_grad]
    if not leaves:
        return None
    with torch.enable_grad():
        output = kind.apply(*wide)
        if not isinstance(output, Tensor) or not output.requires_grad:
            return None
        weights = torch.randn(output.shape, generator=chance, dtype=torch.float64)
        gradients = torch.autograd.grad((output * weights).sum(), leaves, allow_unused=True)
    ways = [torch.randn(leaf.shape, generator=chance, dtype=torch.float64) for leaf in leaves]
    said = sum(float((g * way).sum()) for g, way in zip(gradients, ways, strict=True) if g is not None)

    def at(step: float) -> float:
        moved = iter([leaf.detach() + step * way for leaf, way in zip(leaves, ways, strict=True)])
        inputs = [next(moved) if isinstance(v, Tensor) and v.requires_grad else v for v in wide]
        with torch.no_grad():
            return float((kind.apply(*inputs) * weights).sum())

    true = (at(DIFFERENCE) - at(-DIFFERENCE)) / (2 * DIFFERENCE)
    return abs(said - true) / max(abs(said), abs(true), 1e-12)


class _Embedded(TorchFunctionMode):
    """Keeps the result of the first look-up of token ids, as a tensor that gradients can be asked for."""

    def __init__(self, shape: torch.Size) -> None:
        super().__init__()
        self.found: Tensor | None = None
        self._shape = shape

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") == "embedding" and self.found is None and args[0].shape == self._shape:
            self.found = result
        return result


def reruns(calls_made: list[MicroBatch], calls: Calls, last: LossCall | None) -> dict[str, Any]:
    """Facts of gradients between positions and between rows."""
    facts = custom_operations(calls)
    if not calls_made:
        return facts
    call = calls_made[-1]
    module = call.module
    facts |= compiled(call)
    was_training = module.training
    module.eval()  # dropout and batch statistics join rows on purpose
    try:
        return {**facts, **_zeros(module, call), **_leaks(module, call, last)}
    finally:
        module.train(was_training)


def _zeros(module: nn.Module, call: MicroBatch) -> dict[str, Any]:
    """Gradients that are zero in float32 as well, whatever comes from behind: of dead units, of rows never looked up.

    Backward begins with random numbers at the output, so what the loss divides by does not count.
    """
    halves = [device for device, dtype in call.autocast.enabled if dtype == torch.float16]
    matrices = [p for p in module.parameters() if p.requires_grad and p.dim() > 1 and p.dtype == torch.float32]
    if not halves or not matrices:
        return {}
    with torch.enable_grad(), torch.autocast(halves[0], enabled=False):
        output = first_output(module(*call.args, **call.kwargs))
        if output is None or not output.requires_grad:
            return {}
        chance = torch.Generator().manual_seed(0)
        behind = torch.randn(output.shape, generator=chance).to(output)
        gradients = torch.autograd.grad((output * behind).sum(), matrices, allow_unused=True)
    found = [gradient for gradient in gradients if gradient is not None]
    total = sum(gradient.numel() for gradient in found)
    zero = sum(int((gradient.abs() < torch.finfo(gradient.dtype).tiny).sum()) for gradient in found)
    return {"gradient_zero_share_by_float32": zero / total} if total else {}


def _leaks(module: nn.Module, call: MicroBatch, last: LossCall | None) -> dict[str, Any]:
    tokens = next((v for v in [*call.args, *call.kwargs.values()] if _is_ids(v)), None)
    if tokens is None:
        inputs = next((v for v in call.args if isinstance(v, Tensor) and v.is_floating_point() and v.dim() > 1), None)
        if inputs is None:
            return {}
        leaf = inputs.detach().clone().requires_grad_()
        args = tuple(leaf if value is inputs else value for value in call.args)
        with torch.enable_grad():
            output = first_output(module(*args, **call.kwargs))
            return _between_rows(output, leaf)
    with torch.enable_grad():
        embedded = _Embedded(tokens.shape)
        with embedded:
            output = first_output(module(*call.args, **call.kwargs))
        if embedded.found is None or output is None or not output.requires_grad:
            return {}
        facts = _between_rows(output, embedded.found)
        length = tokens.shape[1]
        if output.dim() == 2 and output.shape[0] == tokens.numel():
            output = output.reshape(*tokens.shape, -1)
        if output.dim() == 3 and output.shape[1] == length and length >= POSITIONS_MIN:
            at = length // 2
            gradient = _gradient(output[:, at].square().sum(), embedded.found)
            if gradient is not None:
                sizes = gradient.abs().amax(dim=(0, 2))
                before, after = float(sizes[: at + 1].max()), float(sizes[at + 1 :].max())
                if before > 0:
                    facts["causal_gradient"] = after / before
        return facts


def _between_rows(output: Tensor | None, given: Tensor) -> dict[str, Any]:
    if output is None or not output.requires_grad or output.dim() < WIDTH_MIN or given.shape[0] < 2:
        return {}
    per_row = output.reshape(given.shape[0], -1) if output.numel() % given.shape[0] == 0 else None
    if per_row is None:
        return {}
    gradient = _gradient(per_row[0].square().sum(), given)
    if gradient is None:
        return {}
    sizes = gradient.abs().reshape(given.shape[0], -1).amax(1)
    own = float(sizes[0])
    return {"batch_gradient": float(sizes[1:].max()) / own} if own > 0 else {}


def _gradient(value: Tensor, given: Tensor) -> Tensor | None:
    if not given.requires_grad:
        return None
    (gradient,) = torch.autograd.grad(value, given, retain_graph=True, allow_unused=True)
    return gradient if gradient is not None and bool(gradient.isfinite().all()) else None


def _is_ids(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dim() == 2 and value.dtype in (torch.int64, torch.int32)
