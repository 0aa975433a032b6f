"""Records what happens during one forward of the script: calls of its root modules and of torch's loss functions.

A hand-written loss is invisible, except for two mistakes: the logarithm of a softmax or sigmoid, and the difference of
a
column and a row, which is a table.
"""

from __future__ import annotations

import contextlib
import inspect
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from steadytrain.checks.subject.model_check import LossCall

LOSS_FUNCTIONS = (
    *("cross_entropy", "nll_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div"),
    *("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "gaussian_nll_loss", "poisson_nll_loss"),
    *("multilabel_soft_margin_loss", "soft_margin_loss", "multi_margin_loss", "ctc_loss"),
)
MAKERS = frozenset({"softmax", "log_softmax", "sigmoid", "logsigmoid", "softmin", "relu", "tanh", "log", "exp"})
"""Functions that determine the kind of their result; a sigmoid, for example, returns probabilities."""

CARRIERS = frozenset(
    {
        *("reshape", "view", "view_as", "transpose", "permute", "squeeze", "unsqueeze", "flatten", "contiguous"),
        *("float", "double", "half", "bfloat16", "to", "type", "__getitem__", "t", "movedim", "expand", "clone"),
        *("index_select", "gather", "masked_select", "unflatten", "narrow", "select"),
    }
)
"""Functions that reshape or select numbers without changing their kind."""

DIFFERENCES = frozenset({"sub", "subtract", "rsub", "__sub__", "__rsub__"})
LOGARITHMS = frozenset({"log", "log2", "log10"})
CALLS_MAX = 256


class LossWatch(TorchFunctionMode):
    """Records the loss functions that Python code calls while the mode is active."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[LossCall] = []
        self._made: dict[int, tuple[weakref.ref[Tensor], str]] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        result = func(*args, **kwargs)
        if _LOSSES.get(func) is not None:
            self._note_loss(_LOSSES[func], func, args, kwargs, result)
        elif name in LOGARITHMS and args and self.made_by(args[0]) in ("softmax", "sigmoid"):
            self._add(LossCall("log", args[0], None, {}, self.made_by(args[0]), result))
        elif name in DIFFERENCES and len(args) > 1 and _is_table(args[0], args[1], result):
            trained, other = (args[0], args[1]) if args[0].requires_grad else (args[1], args[0])
            self._add(LossCall("difference", trained, other, {}, self.made_by(trained), result))
        if isinstance(result, Tensor):
            made = name if name in MAKERS else self.made_by(args[0]) if name in CARRIERS and args else ""
            if made:
                self._made[id(result)] = (weakref.ref(result), made)
        return result

    def made_by(self, tensor: Any) -> str:
        """The function in ``MAKERS`` that made these numbers; '' if none did."""
        reference, name = self._made.get(id(tensor), (None, ""))
        return name if reference is not None and reference() is tensor else ""

    def _note_loss(self, name: str, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        try:
            given = inspect.signature(func).bind(*args, **kwargs)
        except (TypeError, ValueError):
            return
        given.apply_defaults()
        options = dict(given.arguments)
        scores = options.pop(next(iter(options)))
        targets = options.pop("target", options.pop("targets", None))
        if isinstance(scores, Tensor):
            self._add(LossCall(name, scores, targets, options, self.made_by(scores), result))

    def _add(self, call: LossCall) -> None:
        if len(self.calls) < CALLS_MAX:
            self.calls.append(call)


@contextlib.contextmanager
def calls_of(modules: Sequence[nn.Module], *, feed: Callable[..., Any] | None = None) -> Iterator[list[Any]]:
    """Records the outermost calls of ``modules`` in the block: (module, args, kwargs, output)."""
    calls: list[Any] = []
    open_calls: list[nn.Module] = []

    def begins(module: nn.Module, args: Any, kwargs: Any) -> Any:
        open_calls.append(module)
        return feed(module, args, kwargs) if feed is not None and len(open_calls) == 1 else None

    def ends(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        while open_calls and open_calls.pop() is not module:
            pass
        if not open_calls:
            calls.append((module, args, kwargs, output))

    handles: list[Any] = []
    for module in {id(one): one for one in modules}.values():
        handles.append(module.register_forward_pre_hook(begins, with_kwargs=True))
        handles.append(module.register_forward_hook(ends, with_kwargs=True))
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def _is_table(one: Any, other: Any, result: Any) -> bool:
    """Whether a column minus a row was computed, one of them trained: each prediction against each target."""
    if not (isinstance(one, Tensor) and isinstance(other, Tensor) and isinstance(result, Tensor)):
        return False
    if one.requires_grad == other.requires_grad or not result.is_floating_point():
        return False
    shapes = {tuple(one.shape), tuple(other.shape)}
    rows = max(len(one) if one.dim() else 0, len(other) if other.dim() else 0)
    return rows > 1 and shapes in ({(rows,), (rows, 1)}, {(1, rows), (rows, 1)}) and tuple(result.shape) == (rows, rows)


_LOSSES: dict[Any, str] = {getattr(functional, name): name for name in LOSS_FUNCTIONS}
