"""Observes every torch function that the script calls: losses, domain edges, attention, tokens.

A function mode surrounds the whole script. While it is ``active`` it reads arguments and results and changes neither.
Calls by steadytrain itself are left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from steadytrain.core.torch_private import FUNCTION_MODE
from steadytrain.survey import attention_scale, changed_settings, empty_masks, loss_terms, made_numbers, stored_rows
from steadytrain.survey.call_findings import LISTED_MAX, LossCall, Seen, add_listed
from steadytrain.survey.graph_cuts import leaves_behind
from steadytrain.survey.outer_tables import OuterTables, makes_table
from steadytrain.survey.script_lines import line_of, script_frame
from steadytrain.survey.tensor_kinds import KEEPS_KIND, KINDS, TensorKinds, class_dimension, places_cut, sums_to_one

HALF_MAX = 65504.0
LOGIT_LOSSES = frozenset({"cross_entropy", "binary_cross_entropy_with_logits", "multilabel_soft_margin_loss"})
LOG_PROBABILITY_LOSSES = frozenset({"nll_loss", "kl_div", "ctc_loss"})
DISTANCES = frozenset({"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"})  # whichever is called the target
VALUE_LOSSES = DISTANCES | {"binary_cross_entropy"}
LOSSES = LOGIT_LOSSES | LOG_PROBABILITY_LOSSES | VALUE_LOSSES
INSIDE_ONE = frozenset({"acos", "asin", "arccos", "arcsin", "atanh", "arctanh", "erfinv"})
"""Their value or derivative is infinite at -1 and 1."""

SINGULAR = INSIDE_ONE | {"log", "log_", "log2", "log10", "sqrt", "sqrt_", "rsqrt", "reciprocal", "norm"}
TABLES = frozenset({"embedding"})
LOOKED_UP_MAX = 64
"""Bound on the id tensors kept for a step: sixteen micro-batches with four tables each."""

DIVISIONS = frozenset({"div", "true_divide", "__truediv__", "__rtruediv__", "div_", "__itruediv__"})
WRITES_VALUES = frozenset(
    {"masked_fill", "masked_fill_", "fill_", "full_like", "new_full", "where", "masked_scatter", "__setitem__"}
)
"""These may write an infinity on purpose."""


def _own_functions() -> list[Any]:
    """Subclasses of ``torch.autograd.Function`` that torch does not define."""
    waiting: list[Any] = list(torch.autograd.Function.__subclasses__())
    found: list[Any] = []
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if not kind.__module__.startswith(("torch.", "steadytrain.")) and len(found) < LISTED_MAX:
            found.append(kind)
    return found


class Calls(TorchFunctionMode):
    """Reads the script's calls while ``active``. The module hooks set ``in_forward``."""

    def __init__(self) -> None:
        super().__init__()
        self.active = False
        self.in_forward = 0
        self.seen = Seen()
        self.step_losses: list[LossCall] = []
        self.looked_up: list[Tensor] = []
        """The ids [rows, ...] that embedding tables got in this step."""

        self.gradients_on = True
        self._entered = False
        self.products = attention_scale.Products()
        self.masks = empty_masks.EmptyMasks()
        self.made = made_numbers.MadeNumbers()
        self.writes = stored_rows.Writes()
        self.terms = loss_terms.LossTerms()
        self.tables = OuterTables()
        self.settings = changed_settings.Settings()
        self.step_now: Callable[[], int] = int
        """The number of the current step."""

        self.loss_node: Any = None
        """The root node of the last backward. Its saved tensors are freed."""

        self.applied: dict[Any, tuple[Any, ...]] = {}
        self._kinds = TensorKinds()

    def look(self, active: bool) -> None:
        """Switches observation on or off. Calls cost nothing while it is off.

        If a mode of the script lies above this one, it stays entered.
        """
        self.active = active
        if active and not self._entered:
            self.__enter__()  # type: ignore[no-untyped-call]
            self._entered = True
        elif not active and self._entered and FUNCTION_MODE() is self:
            self.__exit__(None, None, None)
            self._entered = False

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What is computed meanwhile is no call of the script."""
        active, self.active = self.active, False
        try:
            yield
        finally:
            self.active = active

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = dict(kwargs or {})
        if not self.active:
            return func(*args, **given)
        name = getattr(func, "__name__", "")
        if name == "__get__" and func == _DATA:
            name = "data"
        self._guarded(self.settings.saw, name, args, given, self.step_now())
        self._guarded(self.made.discarded.given, name, args, given, self.step_now())
        frame = None
        if name in SINGULAR or name in DIVISIONS or name in TABLES:
            frame = script_frame()
            if frame is not None:  # before the call, which may be in place or fail
                self._guarded(self._table if name in TABLES else self._edge, name, args, given, frame)
        if name in made_numbers.INTEGERS:  # likewise
            self._guarded(self.made.before, name, args, given)
        result = func(*args, **given)
        self._guarded(self.made.discarded.made, name, args, result)
        if name in attention_scale.NAMES:
            self._guarded(self.products.saw, name, args, given, result)
        if name in made_numbers.WATCHED and (place := frame or script_frame()) is not None:
            self._guarded(self.made.saw, name, args, given, result, line_of(place), self.step_now())
        if name in loss_terms.REDUCTIONS:
            self._guarded(self.terms.reductions.saw, name, args, given, result)
        if loss_terms.are_terms(name, args) and (place := frame or script_frame()) is not None:
            self._guarded(self.terms.saw, name, args, given, line_of(place))
        if name in empty_masks.NAMES and (place := frame or script_frame()) is not None:
            self._guarded(self.masks.saw, name, args, given, result, line_of(place))
        if args and stored_rows.writes(name, given) and (place := frame or script_frame()) is not None:
            self._guarded(self.writes.saw, name, args[0], line_of(place), self.step_now())
        if makes_table(name, args, result) and (place := script_frame()) is not None:
            self._guarded(self.tables.saw, name, args, result, line_of(place))
        reader, half = _READERS.get(name), isinstance(result, Tensor) and result.dtype == torch.float16
        if (reader is not None or half) and (frame := frame or script_frame()) is not None:
            if half:
                self._guarded(self._half, name, args, result, frame)
            if reader is not None:
                self._guarded(getattr(self, reader), name, args, given, result, frame)
        return result

    def watch_functions(self) -> None:
        """Records the inputs of the custom autograd functions that exist so far."""
        for kind in _own_functions():
            if "apply" not in vars(kind):
                self._watch_function(kind)

    def _watch_function(self, kind: Any) -> None:
        original = kind.apply

        def apply(*args: Any, **kwargs: Any) -> Any:
            if self.active and kind not in self.applied and not kwargs:
                self.applied[kind] = tuple(v.detach().clone() if isinstance(v, Tensor) else v for v in args)
            result = original(*args, **kwargs)
            if self.active:
                self._guarded(self.made.contexts.applied, kind, result)
            return result

        kind.apply = apply

    def _guarded(self, read: Callable[..., None], *arguments: Any) -> None:
        self.gradients_on = torch.is_grad_enabled()
        try:
            with torch.no_grad():
                read(*arguments)
        except Exception as error:  # a call of an unusual form is skipped; the survey goes on
            add_listed(self.seen.notes, f"a call of {arguments[0]} was not read: {type(error).__name__}: {error}")

    def step_begins(self) -> None:
        """Drops the tensors of the previous step."""
        self.step_losses, self.looked_up = [], []
        self.masks.step_begins()
        self.made.step_begins()

    # -- readers ---------------------------------------------------------------------------------------------------

    def _loss(self, name: str, args: Sequence[Any], given: Mapping[str, Any], result: Any, frame: FrameType) -> None:
        given_input = _argument(args, given, 0, "input", "log_probs")
        target = _argument(args, given, 1, "target", "targets")
        if not isinstance(given_input, Tensor) or not isinstance(target, Tensor):
            return
        line, kind = line_of(frame), self._kinds.kind_of(given_input)
        if target.numel() == 0 and given.get("reduction", "mean") == "mean":
            self.masks.averaged(target, line)
        call = LossCall(
            name=name,
            input=given_input.detach(),
            target=target.detach(),
            reduction=str(given.get("reduction", "mean")),
            ignore_index=int(given.get("ignore_index", -100)) if name in ("cross_entropy", "nll_loss") else None,
            input_kind=kind,
            line=line,
            ends=self._kinds.ends_of(given_input),
            places_cut=places_cut(given_input),
        )
        self.step_losses.append(call)
        self.seen.smoothing = max(self.seen.smoothing, float(given.get("label_smoothing", 0.0)))
        form = {
            "name": name,
            "reduction": call.reduction,
            "ignore_index": call.ignore_index,
            "input_shape": list(given_input.shape),
            "target_shape": list(target.shape),
            "input_dtype": str(given_input.dtype).removeprefix("torch."),
            "target_dtype": str(target.dtype).removeprefix("torch."),
            "input_kind": kind,
            "target_kind": "values" if target.is_floating_point() else "classes",
            "line": line,
        }
        if len(self.seen.loss_forms) < LISTED_MAX:
            self.seen.loss_forms.setdefault(f"{name} {line}", form)
        if name in LOGIT_LOSSES and kind == "probabilities":
            add_listed(self.seen.probabilities_as_logits, line)
        exponents = given_input.float().exp()
        finite = name in ("nll_loss", "kl_div") and not bool(given_input.isnan().any())
        if finite and not sums_to_one(exponents, class_dimension(given_input)):
            add_listed(self.seen.logits_as_log_probabilities, line)
        if target.requires_grad and not given_input.requires_grad and name not in DISTANCES:
            add_listed(self.seen.swapped, line)
        if name in VALUE_LOSSES and given_input.shape != target.shape:
            made = self.tables.said(target)
            add_listed(self.seen.broadcast, f"{line}: {list(given_input.shape)} with {list(target.shape)}{made}")
        if name == "ctc_loss":
            self._ctc(args, given)

    def _ctc(self, args: Sequence[Any], given: Mapping[str, Any]) -> None:
        targets = _argument(args, given, 1, "targets")
        input_lengths = torch.as_tensor(_argument(args, given, 2, "input_lengths")).tolist()
        target_lengths = torch.as_tensor(_argument(args, given, 3, "target_lengths")).tolist()
        begin = 0
        for row, (there, length) in enumerate(zip(input_lengths, target_lengths, strict=False)):
            ids = targets[row, :length] if targets.dim() == 2 else targets[begin : begin + length]
            begin += length
            if length + int((ids[1:] == ids[:-1]).sum()) > there:
                add_listed(self.seen.ctc_infeasible, row)

    def _makes_kind(self, name: str, args: Any, given: Any, result: Any, frame: FrameType) -> None:
        self._kinds.made(name, result)
        if name == "softmax":
            self._softmax(args, given, frame)

    def _softmax(self, args: Any, given: Any, frame: FrameType) -> None:
        given_input, dimension = _argument(args, given, 0, "input"), _argument(args, given, 1, "dim")
        if not isinstance(given_input, Tensor) or given_input.numel() == 0:
            return
        if given_input.dim() == 2 and dimension in (0, -2) and given_input.shape[0] > 1:
            add_listed(self.seen.softmax_dimension, line_of(frame))
        if given_input.dim() >= 3 and dimension in (-1, given_input.dim() - 1):
            self._attention(given_input)
            self.products.softmaxed(given_input)

    def _attention(self, logits: Tensor) -> None:
        self.seen.fully_masked = max(self.seen.fully_masked, int(attention_scale.without_keys(logits).sum()))
        open_ = logits[logits > attention_scale.MASKED_BELOW]
        open_ = open_[open_.isfinite()]
        if open_.numel():
            self.seen.attention_largest = max(self.seen.attention_largest, float(open_.abs().max()))

    def _sdpa(self, name: str, args: Any, given: Any, result: Any, frame: FrameType) -> None:
        query, key = _argument(args, given, 0, "query"), _argument(args, given, 1, "key")
        mask, scale = _argument(args, given, 3, "attn_mask"), given.get("scale")
        logits = query.float() @ key.float().transpose(-2, -1) * (scale or 1 / math.sqrt(query.shape[-1]))
        if isinstance(mask, Tensor):
            logits = logits.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else logits + mask.float()
        self._attention(logits)
        self.products.attended(query, key, logits, scale)

    def _ending(self, name: str, args: Any, given: Any, result: Any, frame: FrameType) -> None:
        self._kinds.made(name, result)

    def _keeps(self, name: str, args: Any, given: Any, result: Any, frame: FrameType) -> None:
        self._kinds.kept(name, args[0] if args else None, result)

    def _difference(self, name: str, args: Any, given: Any, result: Any, frame: FrameType) -> None:
        one, other = args[0], args[1] if len(args) > 1 else None
        if not (isinstance(one, Tensor) and isinstance(other, Tensor) and one.dim() and other.dim()):
            return
        outer = result.numel() > max(one.numel(), other.numel()) and one.numel() == other.numel()
        if outer and one.dim() != other.dim() and one.requires_grad != other.requires_grad:
            add_listed(self.seen.broadcast, f"{line_of(frame)}: {list(one.shape)} with {list(other.shape)}")

    def _table(self, name: str, args: Any, given: Any, frame: FrameType) -> None:
        ids, weight = _argument(args, given, 0, "input"), _argument(args, given, 1, "weight")
        if ids.dim() > 1 and len(self.looked_up) < LOOKED_UP_MAX:
            self.looked_up.append(ids.detach())
        if isinstance(weight, Tensor) and ids.numel():
            rows = int(weight.shape[0])
            largest, outside = int(ids.max()), int(((ids < 0) | (ids >= rows)).sum())
            before = self.seen.tables.get(id(weight), (0, rows, 0))
            self.seen.tables[id(weight)] = (max(before[0], largest), rows, max(before[2], outside))

    def _batch_norm(self, name: str, args: Any, given: Any, result: Any, frame: FrameType) -> None:
        value = args[0]
        if given.get("training", args[5] if len(args) > 5 else False) and value.dim() >= 2:
            count = value.numel() // max(1, value.shape[1])
            self.seen.batch_norm_values = min(count, self.seen.batch_norm_values or count)

    def _dropout(self, name: str, args: Any, given: Any, result: Any, frame: FrameType) -> None:
        training = given.get("training", args[2] if len(args) > 2 else True)
        share = given.get("p", args[1] if len(args) > 1 else 0.5)
        if training and self.gradients_on and isinstance(share, float) and len(self.seen.dropout) < LISTED_MAX:
            self.seen.dropout[line_of(frame)] = share
        self.seen.functional_dropout |= bool(training) and not self.gradients_on

    def _detach(self, name: str, args: Any, given: Any, result: Any, frame: FrameType) -> None:
        if self.in_forward and isinstance(args[0], Tensor) and args[0].requires_grad:
            if name == "data" and args[0].is_leaf:
                return  # accesses a parameter's values and cuts no graph
            line = line_of(frame)
            if line not in self.seen.detached:
                self.seen.behind_cuts |= leaves_behind(args[0])
            add_listed(self.seen.detached, line)

    def _backward(self, name: str, args: Any, given: Any, result: Any, frame: FrameType) -> None:
        self.seen.retain_graph |= bool(given.get("retain_graph"))
        self.loss_node = args[0].grad_fn
        add_listed(self.seen.backward_lines, line_of(frame))

    def _times(self, name: str, args: Any, given: Any, result: Any, frame: FrameType) -> None:
        """Records a loss that is multiplied by a number below 1, which is another way to divide it."""
        value, factor = args[0], args[1] if len(args) > 1 else given.get("other")
        if isinstance(factor, (int, float)) and isinstance(value, Tensor) and value.dim() == 0 and 0 < factor < 1:
            add_listed(self.seen.factors, float(factor))

    def _edge(self, name: str, args: Any, given: Any, frame: FrameType) -> None:
        """Records values at or past the edge of a function's domain. Runs before the call, which may be in place."""
        value = args[0] if args else given.get("input")
        if name in DIVISIONS:
            value = (args[1] if len(args) > 1 else given.get("other")) if name != "__rtruediv__" else value
            scalar = isinstance(value, (int, float)) or (isinstance(value, Tensor) and value.numel() == 1)
            self.masks.divided(args[0] if name != "__rtruediv__" else args[1], value, line_of(frame))
            if scalar and isinstance(args[0], Tensor) and args[0].dim() == 0 and float(value) > 1:
                self.seen.divisors.append(float(value))
        if not isinstance(value, Tensor) or not value.is_floating_point() or value.numel() == 0:
            return
        bad = value.abs() >= 1 if name in INSIDE_ONE else value == 0 if name in DIVISIONS else value <= 0
        if name == "norm":
            bad = value.square().sum().reshape(1) == 0
        if name in ("sqrt", "sqrt_", "norm") and not value.requires_grad:
            return
        zeros = int(bad.sum())
        if zeros and len(self.seen.singular) < LISTED_MAX:
            line = line_of(frame)
            self.seen.singular[f"{name} {line}"] = {
                "operation": name.strip("_"),
                "line": line,
                "smallest": float(value.min()),
                "zeros": zeros,
            }

    def _half(self, name: str, args: Any, result: Tensor, frame: FrameType) -> None:
        self.seen.half_used = True
        if not result.is_floating_point() or result.numel() == 0:
            return
        finite = result.isfinite()
        if bool(finite.any()):
            peak = float(result[finite].abs().max()) / HALF_MAX
            self.seen.half_peak = max(self.seen.half_peak, peak)
        given = [value for value in args if isinstance(value, Tensor) and value.is_floating_point()]
        if not given or name in WRITES_VALUES or not bool(result.isinf().any()):
            return
        if all(bool(value.isfinite().all()) for value in given) and not attention_scale.masked_before(
            args, given, result
        ):
            add_listed(self.seen.half_overflow, f"{name} at {line_of(frame)}")


_DATA: Any = Tensor.data.__get__  # type: ignore[attr-defined]

_READERS: dict[str, str] = {
    **dict.fromkeys(LOSSES, "_loss"),
    **dict.fromkeys(KINDS, "_makes_kind"),
    **dict.fromkeys(KEEPS_KIND, "_keeps"),
    **dict.fromkeys(("sub", "__sub__", "__rsub__", "rsub"), "_difference"),
    **dict.fromkeys(("tanh", "relu", "relu_", "tanh_"), "_ending"),
    "scaled_dot_product_attention": "_sdpa",
    "batch_norm": "_batch_norm",
    **dict.fromkeys(("detach", "data", "item", "tolist", "numpy"), "_detach"),
    "dropout": "_dropout",
    "backward": "_backward",
    **dict.fromkeys(("mul", "mul_", "multiply", "__mul__", "__rmul__"), "_times"),
}


def _argument(args: Sequence[Any], given: Mapping[str, Any], place: int, *names: str) -> Any:
    if place < len(args):
        return args[place]
    return next((given[name] for name in names if name in given), None)
