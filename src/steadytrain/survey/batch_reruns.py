"""Reruns the last batch after the last step, to find leaks between positions and rows.

The reruns draw random numbers and move buffers. The process ends right after, so that no longer matters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from steadytrain.capture.step.input_recorder import MicroBatch
from steadytrain.capture.step.ranks import without_reduction
from steadytrain.survey.call_findings import LossCall
from steadytrain.survey.calls import Calls
from steadytrain.survey.compiled_model import compiled
from steadytrain.survey.tensor_values import first_output, is_ids

POSITIONS_MIN = 4
WIDTH_MIN = 2
DIFFERENCE, WIDER_DIFFERENCE = 1e-6, 1e-4
AGREES = 0.003
"""Maximum relative difference of the slopes over the two distances. In float64 they differ by less; in float32 by
several
percent.
"""

CONTINUED_SHARE_MIN = 0.5
"""Share of the labels that count which have to be the next token of an input."""

MOVES_MIN = 0.05
"""Minimum share of outputs that must move. Fewer move if the forward is flat between jumps."""


def custom_operations(calls: Calls) -> dict[str, Any]:
    """Compares custom autograd functions with finite differences, along one direction in float64."""
    names, errors = [], {}
    for kind, given in calls.applied.items():
        names.append(kind.__name__)
        try:
            error = _backward_error(kind, given)
        except Exception:  # a function that fails in float64 cannot be measured
            error = None
        if error is not None:
            errors[kind.__name__] = error
    return {"custom_operations": names, "custom_gradient_error": errors} if names else {}


def _backward_error(kind: Any, given: tuple[Any, ...]) -> float | None:
    """The relative error of the gradient against the slope of the forward; None if the slope proves nothing.

    A backward may differ from the forward on purpose: if the forward changes nothing (gradient reversal or scaling), or
    is
    flat between jumps (a straight-through estimator, a spike). Both are skipped. The slopes over two distances must
    agree,
    which excludes random and low-precision forwards.
    """
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

    def at(step: float) -> Tensor:
        moved = iter([leaf.detach() + step * way for leaf, way in zip(leaves, ways, strict=True)])
        inputs = [next(moved) if isinstance(v, Tensor) and v.requires_grad else v for v in wide]
        with torch.no_grad():
            result: Tensor = kind.apply(*inputs)
        return result

    far = at(1.0)  # a state that begins with zeros equals its product with anything
    if any(far.shape == leaf.shape and torch.equal(far, leaf + way) for leaf, way in zip(leaves, ways, strict=True)):
        return None
    changes = [(at(step) - at(-step)) / (2 * step) for step in (DIFFERENCE, WIDER_DIFFERENCE)]
    if float((changes[0] != 0).double().mean()) < MOVES_MIN:
        return None
    true, wider = (float((change * weights).sum()) for change in changes)
    if abs(true - wider) > AGREES * max(abs(true), abs(wider)):
        return None
    return abs(said - true) / max(abs(said), abs(true), 1e-12)


class _Embedded(TorchFunctionMode):
    """Captures the first embedding of the token ids, as a tensor that can be differentiated. ``exact``: of these
    values, because other inputs have their shape."""

    def __init__(self, tokens: Tensor, *, exact: bool) -> None:
        super().__init__()
        self.found: Tensor | None = None
        self._tokens = tokens
        self._exact = exact

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") == "embedding" and self.found is None and self._is_it(args[0]):
            self.found = result
        return result

    def _is_it(self, given: Tensor) -> bool:
        return given.shape == self._tokens.shape and (not self._exact or torch.equal(given, self._tokens))


def reruns(calls_made: list[MicroBatch], calls: Calls, last: LossCall | None) -> dict[str, Any]:
    """Facts about gradients between positions and between rows."""
    facts = custom_operations(calls)
    if not calls_made:
        return facts
    call = calls_made[-1]
    module = without_reduction(call.module)
    facts |= compiled(call)
    was_training = module.training
    module.eval()  # dropout and batch statistics mix rows on purpose
    try:
        return {**facts, **_zeros(module, call), **_leaks(module, call, last)}
    finally:
        module.train(was_training)


def _zeros(module: nn.Module, call: MicroBatch) -> dict[str, Any]:
    """The share of gradients that are zero in float32 too, such as those of dead units and of rows never looked up.

    Backward starts from random output gradients, so that divisors of the loss have no influence.
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
    all_tokens = [v for v in [*call.args, *call.kwargs.values()] if is_ids(v)]
    continued = _continued(all_tokens, last)
    tokens = continued if continued is not None else next(iter(all_tokens), None)
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
        embedded = _Embedded(tokens, exact=len(all_tokens) > 1)
        with embedded:
            output = first_output(module(*call.args, **call.kwargs))
        if embedded.found is None or output is None or not output.requires_grad:
            return {}
        facts = _between_rows(output, embedded.found)
        length = tokens.shape[1]
        if output.dim() == 2 and output.shape[0] == tokens.numel():
            output = output.reshape(*tokens.shape, -1)
        if continued is not None and output.dim() == 3 and output.shape[1] == length and length >= POSITIONS_MIN:
            at = _supervised_place(last, tokens)
            gradient = _gradient(output[:, at].square().sum(), embedded.found)
            if gradient is not None:
                sizes = gradient.abs().amax(dim=(0, 2))
                before, after = float(sizes[: at + 1].max()), float(sizes[at + 1 :].max())
                if before > 0:
                    facts["causal_gradient"] = after / before
        return facts


def _continued(inputs: Sequence[Tensor], last: LossCall | None) -> Tensor | None:
    """The token ids that the labels continue; those of a single input in any case.

    Of several inputs one may be an encoder's, which may be read in both directions: None if no label tells which.
    """
    if len(inputs) < 2 or last is None or last.target.is_floating_point():
        return inputs[0] if len(inputs) == 1 else None
    ignored = -100 if last.ignore_index is None else last.ignore_index
    for tokens in inputs:
        rows, length = tokens.shape
        width = last.target.numel() // max(rows, 1)
        if width * rows != last.target.numel() or width not in (length, length - 1) or not width > 1:
            continue
        labels = last.target.reshape(rows, width)[:, : length - 1].to(tokens.device)
        used = labels != ignored
        if float((labels == tokens[:, 1:])[used].double().mean()) > CONTINUED_SHARE_MIN:
            return tokens
    return None


def _supervised_place(last: LossCall | None, tokens: Tensor) -> int:
    """A labelled position near the middle. A prefix without labels may be read in both directions."""
    rows, length = tokens.shape
    middle = length // 2
    if last is None or last.target.is_floating_point() or last.target.numel() % rows:
        return middle
    labels = last.target.reshape(rows, -1)
    used = torch.ne(labels, -100 if last.ignore_index is None else last.ignore_index).any(0)
    places = [place for place in used.nonzero().flatten().tolist() if place < length - 1]
    return int(places[len(places) // 2]) if places else middle


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
