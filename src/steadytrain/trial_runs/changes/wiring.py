"""Corrected wiring: plain autograd, a graph without cuts, a causal mask."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, final

import torch
from torch import Tensor, nn

from steadytrain.capture.step.input_recorder import tensors_in
from steadytrain.core.torch_private import SINGLE_LEVEL
from steadytrain.trial_runs.changes import LiveChange, is_one_of, modules_called, more_than
from steadytrain.trial_runs.function_stand_ins import ATTENTION, MASKED, SOFTMAX
from steadytrain.trial_runs.launched_script import CannotApplyError, Launched

FUNCTIONS_MAX = 256
_TORCH = str(Path(torch.__file__).parent)
_OWN = str(Path(__file__).parents[2])
_TRIALS = str(Path(__file__).parents[1])


@final
@dataclass
class ReferenceOperation(LiveChange):
    """The classes of ``torch.autograd.Function`` named in ``operations`` run their forward as ordinary code, so that
    torch
    derives the backward instead of using the custom one.
    """

    operations: list[str]
    nothing = "no operation with such a name is called"
    _why: str = field(default="", init=False, repr=False)

    def check(self) -> None:
        _at_least_one_name(self.operations)

    def begin(self, process: Launched) -> None:
        for kind in _functions_called(self.operations):
            self._replace(kind)

    def gate(self, process: Launched) -> None:
        if self._why:
            raise CannotApplyError(self._why)

    def _replace(self, kind: Any) -> None:
        alone = kind.setup_context is SINGLE_LEVEL.get()

        def apply(*args: Any) -> Any:
            self.touch()
            result = kind.forward(_Context(), *args) if alone else kind.forward(*args)
            outputs = [one for one in tensors_in(result) if one.is_floating_point()]
            if _wants_gradient(args) and outputs and not any(one.requires_grad for one in outputs):
                self._why = (
                    f"torch cannot differentiate the forward of {kind.__name__}, so it has no backward but its own"
                )
                return own(*args)
            return result

        own = kind.apply
        kind.apply = apply


@final
@dataclass
class OwnContexts(LiveChange):
    """The contexts of the classes of ``torch.autograd.Function`` named in ``operations`` get copies of the tensors that
    they keep as attributes, when a forward is over."""

    operations: list[str]
    nothing = "no operation with such a name keeps a tensor as an attribute of its context"

    def check(self) -> None:
        _at_least_one_name(self.operations)

    def begin(self, process: Launched) -> None:
        for kind in _functions_called(self.operations):
            self._wrap(kind)

    def _wrap(self, kind: Any) -> None:
        def apply(*args: Any, **kwargs: Any) -> Any:
            result = own(*args, **kwargs)
            node = next((one.grad_fn for one in tensors_in(result) if one.grad_fn is not None), None)
            for name, value in list(vars(node).items()) if node is not None else ():
                if isinstance(value, Tensor):
                    setattr(node, name, value.clone())
                    self.touch()
            return result

        own = kind.apply
        kind.apply = apply


class _Context:
    """Accepts what a forward saves for its backward, and drops it."""

    needs_input_grad: tuple[bool, ...] = (True,) * 64

    def save_for_backward(self, *tensors: Any) -> None: ...

    def save_for_forward(self, *tensors: Any) -> None: ...

    def mark_non_differentiable(self, *tensors: Any) -> None: ...

    def mark_dirty(self, *tensors: Any) -> None: ...

    def set_materialize_grads(self, value: bool) -> None: ...


@final
@dataclass
class Reattach(LiveChange):
    """``detach`` and ``.data`` at ``lines`` (``train.py:17``) return the tensor itself, and ``modules`` called under
    ``no_grad`` run with gradients. At least one of ``parameters`` must get a gradient.
    """

    lines: list[str]
    modules: list[str] = field(default_factory=list)
    parameters: list[str] = field(default_factory=list)
    nothing = "nothing is detached at these lines"
    _arrived: bool = field(default=False, init=False, repr=False)

    def check(self) -> None:
        if not self.lines and not self.modules:
            raise ValueError("lines and modules: give at least one place where the graph is cut")

    def begin(self, process: Launched) -> None:
        if self.lines:
            process.functions.replace((Tensor.detach, torch.detach, Tensor.data.__get__), self._kept)  # type: ignore[attr-defined]
        for module in modules_called(process, self.modules):
            before: list[bool] = []

            def enter(module: nn.Module, args: Any, before: list[bool] = before) -> None:
                before.append(torch.is_grad_enabled())
                if not before[-1]:
                    self.touch()
                torch.set_grad_enabled(True)

            def leave(module: nn.Module, args: Any, output: Any, before: list[bool] = before) -> None:
                torch.set_grad_enabled(before.pop())

            module.register_forward_pre_hook(enter)
            module.register_forward_hook(leave)

    def _kept(self, original: Any, tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        if not tensor.requires_grad or _line_of_script() not in self.lines:
            return original(tensor, *args, **kwargs)
        self.touch()
        return tensor

    def gate(self, process: Launched) -> None:
        if self._arrived or not self.touched or not self.parameters:
            return
        names = process.names()
        wanted = [one for one in process.parameters if is_one_of(names.get(id(one), ""), self.parameters)]
        if wanted and all(one.grad is None for one in wanted):
            raise CannotApplyError("no gradient passes the former cut; the graph is cut elsewhere too")
        self._arrived = True


@final
@dataclass
class CausalMask(LiveChange):
    """Self-attention by torch's functions sees nothing after its own position. Probes use the mask too: their loss is
    what
    the model achieves without looking ahead.
    """

    nothing = "no attention by torch's functions sees later positions"

    def begin(self, process: Launched) -> None:
        process.functions.replace(ATTENTION, self._attention)
        process.functions.replace(SOFTMAX, self._softmax)

    def _attention(
        self,
        original: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        **kwargs: Any,
    ) -> Tensor:
        length = query.shape[-2]
        if is_causal or length != key.shape[-2] or length < 2:
            return original(query, key, value, attn_mask, dropout_p, is_causal, **kwargs)  # type: ignore[no-any-return]
        seen = torch.ones(length, length, dtype=torch.bool, device=query.device).tril()
        if attn_mask is None:
            self.touch()
            return original(query, key, value, seen, dropout_p, False, **kwargs)  # type: ignore[no-any-return]
        if attn_mask.dtype == torch.bool:
            open_ahead, mask = bool((attn_mask & ~seen).any()), attn_mask & seen
        else:
            open_ahead = bool(((attn_mask > MASKED) & ~seen).any())
            mask = attn_mask.masked_fill(~seen, -math.inf)
        if open_ahead:
            self.touch()
        return original(query, key, value, mask if open_ahead else attn_mask, dropout_p, False, **kwargs)  # type: ignore[no-any-return]

    def _softmax(self, original: Any, scores: Tensor, *args: Any, **kwargs: Any) -> Any:
        dim = kwargs.get("dim", args[0] if args else None)
        square = scores.dim() >= 3 and scores.shape[-1] == scores.shape[-2] > 1
        if not square or dim not in (-1, scores.dim() - 1):
            return original(scores, *args, **kwargs)
        ahead = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        if not bool(((scores > MASKED) & ahead).any()):
            return original(scores, *args, **kwargs)
        self.touch()
        return original(scores.masked_fill(ahead, -math.inf), *args, **kwargs)


@final
@dataclass
class QkClip(LiveChange):
    """Scales the queries and keys of each head down if their largest product exceeds ``limit``: scores are multiplied
    by
    ``limit / largest``, a constant for autograd. Weights stay.
    """

    limit: float
    nothing = "no score of attention by torch's functions is above the limit"

    def check(self) -> None:
        more_than("limit", self.limit, 0.0)

    def begin(self, process: Launched) -> None:
        process.functions.replace(ATTENTION, self._attention)
        process.functions.replace(SOFTMAX, self._softmax)

    def _factor(self, scores: Tensor) -> Tensor | None:
        """The factor for each head (the last dimension but two), if there are heads; None if nothing exceeds the
        limit."""
        with torch.no_grad():
            sizes = scores.masked_fill(scores <= MASKED, 0.0).abs().float()
            heads = sizes.dim() - 3 if sizes.dim() > 3 else None
            over = tuple(place for place in range(sizes.dim()) if place != heads)
            largest = sizes.amax(over, keepdim=True)
            if not bool((largest > self.limit).any()):
                return None
            return (self.limit / largest.clamp_min(self.limit)).to(scores.dtype)

    def _attention(self, original: Any, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Any:
        scale = kwargs.get("scale") or 1 / math.sqrt(query.shape[-1])
        with torch.no_grad():
            grouped = query.shape[-3] // key.shape[-3] if kwargs.get("enable_gqa") else 1
            keys = key.repeat_interleave(grouped, -3) if grouped > 1 else key
            factor = self._factor(query @ keys.transpose(-2, -1) * scale)
        if factor is None:
            return original(query, key, value, *args, **kwargs)
        self.touch()
        return original(query * factor, key, value, *args, **kwargs)

    def _softmax(self, original: Any, scores: Tensor, *args: Any, **kwargs: Any) -> Any:
        factor = self._factor(scores) if scores.dim() >= 3 else None
        if factor is None:
            return original(scores, *args, **kwargs)
        self.touch()
        clipped = torch.where(scores > MASKED, scores * factor, scores)
        return original(clipped, *args, **kwargs)


def _line_of_script() -> str | None:
    """The script line (``train.py:17``) of the replaced call; None if steadytrain made the call."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        filename = frame.f_code.co_filename
        if filename.startswith(_OWN) and not filename.startswith(_TRIALS):
            return None
        if not filename.startswith((_OWN, _TORCH, "<frozen")):
            return f"{Path(filename).name}:{frame.f_lineno}"
        frame = frame.f_back
    return None


def _at_least_one_name(operations: Sequence[str]) -> None:
    if not operations:
        raise ValueError("operations: give at least one class name")


def _functions_called(names: Sequence[str]) -> list[Any]:
    """The custom functions of these names, as far as the script has defined them."""
    return [kind for kind in _own_functions() if kind.__name__ in names]


def _own_functions() -> list[Any]:
    """Subclasses of ``torch.autograd.Function`` that torch does not define."""
    waiting: list[Any] = list(torch.autograd.Function.__subclasses__())
    found: list[Any] = []
    while waiting and len(found) < FUNCTIONS_MAX:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if not kind.__module__.startswith(("torch.", "steadytrain.")):
            found.append(kind)
    return found


def _wants_gradient(args: tuple[Any, ...]) -> bool:
    return torch.is_grad_enabled() and any(isinstance(one, Tensor) and one.requires_grad for one in args)
