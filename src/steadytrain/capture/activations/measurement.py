"""One measurement while it forms: what was seen of each module's outputs, as small vectors on their devices."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from steadytrain.capture.activations import attention, logits, outputs
from steadytrain.capture.activations.columns import COLUMNS
from steadytrain.capture.activations.host import HostCopies
from steadytrain.capture.activations.outputs import Look, first_floating, plain_values
from steadytrain.capture.activations.rows import Call, Heads, heads_row, module_row
from steadytrain.model import Reading

CALLS_MAX = 8
"""Calls of one module that are looked at: a cell that runs once a token would cost as many looks."""


@dataclass(frozen=True)
class Taken:
    """A finished measurement.

    Args:
        modules: the table "modules".
        dtypes: of each module's output.
        logits: dtype of the logits as the model gives them, if they were seen.
        loss_input: dtype of what ``cross_entropy`` was called with, if it was seen.
    """

    modules: Reading
    dtypes: Mapping[str, str]
    logits: str | None
    loss_input: str | None


class Measurement:
    """Is shown outputs and calls by whoever stands in the forward; looks at once and keeps none of them."""

    def __init__(self) -> None:
        self.logits_dtype: str | None = None
        self.loss_input: str | None = None
        self._looks: dict[str, list[Look]] = {}
        self._heads: dict[str, list[Tensor]] = {}
        self._owner: dict[str, int] = {}
        self._logits: tuple[str, int, Tensor] | None = None
        self._copies: HostCopies | None = None
        self._last: tuple[Callable[[], Tensor | None], int, Look] | None = None
        self._last_scores: Callable[[], Tensor | None] = lambda: None

    @property
    def saw_something(self) -> bool:
        return bool(self._looks or self._logits)

    def see_output(self, path: str, module: int, output: Any) -> None:
        """What the module at ``path`` put out; ``module`` tells it from a wrapper that stands at the same path."""
        if self._owner.setdefault(path, module) != module or len(self._looks.get(path, ())) >= CALLS_MAX:
            return
        tensor = first_floating(output)
        if tensor is None:
            return
        look = self._look(tensor)
        if look is not None:
            self._looks.setdefault(path, []).append(look)

    def see_model_output(self, path: str, output: Any) -> None:
        """What the script's own call of a module gave: logits are among it, or not."""
        named = logits.named_logits(output)
        if named is not None:
            self.logits_dtype = self.logits_dtype or dtype_name(named.dtype)
            self.see_logits(path, named)
        elif self._logits is None:
            likely = logits.likely_logits(output)
            if likely is not None:
                self.logits_dtype = self.logits_dtype or dtype_name(likely.dtype)
                self.see_logits(path, likely)

    def see_logits(self, path: str, tensor: Tensor) -> None:
        """Of several, those with the most classes count."""
        if tensor.dim() and (self._logits is None or tensor.shape[-1] > self._logits[1]):
            values = plain_values(tensor)
            log_z = logits.look_at_logits(values) if values is not None else None
            if log_z is not None:
                self._logits = (path, tensor.shape[-1], log_z)

    def see_loss_input(self, path: str, tensor: Tensor) -> None:
        """What ``cross_entropy`` was called with."""
        self.loss_input = self.loss_input or dtype_name(tensor.dtype)
        self.see_logits(path, logits.classes_last(tensor))

    def see_attention(
        self,
        path: str,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        **others: Any,
    ) -> None:
        """A call of ``scaled_dot_product_attention``, with torch's names."""
        if not all(_is_plain(tensor) for tensor in (query, key, attn_mask) if tensor is not None):
            return
        with _exact(query):
            scale = others.get("scale")
            self._keep_heads(
                path, attention.look_at_queries(query, key, mask=attn_mask, is_causal=is_causal, scale=scale)
            )

    def see_softmax(self, path: str, module_class: str, values: Any, dimension: Any) -> None:
        """A softmax, which may be attention's."""
        if self._last_scores() is values or not _is_plain(values):
            return
        if attention.is_softmax_of_scores(values, dimension, module_class):
            self._last_scores = weakref.ref(values)
            with _exact(values):
                self._keep_heads(path, attention.look_at_scores(values))

    def start_copies(self) -> None:
        """Send the numbers to the host, without waiting for them."""
        if self._copies is None:
            self._copies = HostCopies(
                [
                    *(look.values for looks in self._looks.values() for look in looks),
                    *(heads for calls in self._heads.values() for heads in calls),
                    *([self._logits[2]] if self._logits else []),
                ]
            )

    def taken(self, order: Sequence[str]) -> Taken:
        """The finished measurement, its rows in the order of the model. Waits for the copies."""
        self.start_copies()
        assert self._copies is not None
        numbers = iter(self._copies.values())
        rows: dict[str, dict[str, float]] = {path: {} for path in order}
        for path, looks in self._looks.items():
            rows[path] |= module_row([_call(look, next(numbers)) for look in looks])
        for path, calls in self._heads.items():
            rows[path] |= heads_row([Heads(*next(numbers)) for _ in calls])
        if self._logits:
            rows[self._logits[0]] |= dict(zip(logits.ON_DEVICE, next(numbers), strict=True))
        rows = {path: row for path, row in rows.items() if row}
        values = np.array([[row.get(column, math.nan) for column in COLUMNS] for row in rows.values()], np.float64)
        with np.errstate(over="ignore"):
            narrow = values.astype(np.float32).reshape(len(rows), len(COLUMNS))
        return Taken(
            Reading("modules", tuple(rows), tuple(COLUMNS), narrow),
            {path: dtype_name(looks[-1].dtype) for path, looks in self._looks.items()},
            self.logits_dtype,
            self.loss_input,
        )

    def _look(self, tensor: Tensor) -> Look | None:
        """A container often hands on the very tensor of its last child: that is looked at once."""
        if self._last is not None and self._last[0]() is tensor and self._last[1] == tensor._version:
            return self._last[2]
        values = plain_values(tensor)
        if values is None or not values.numel():
            return None
        look = outputs.look(values)
        self._last = (weakref.ref(tensor), tensor._version, look)
        return look

    def _keep_heads(self, path: str, heads: Tensor | None) -> None:
        calls = self._heads.setdefault(path, [])
        if heads is not None and len(calls) < CALLS_MAX:
            calls.append(heads)


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _call(look: Look, numbers: Sequence[float]) -> Call:
    return Call(look.count, dtype_name(look.dtype), torch.finfo(look.dtype).max, *numbers)


def _is_plain(tensor: Any) -> bool:
    return type(tensor) in (Tensor, torch.nn.Parameter) and plain_kind(tensor)


def plain_kind(tensor: Tensor) -> bool:
    if tensor.layout != torch.strided or tensor.device.type == "meta":
        return False
    return not torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def _exact(tensor: Tensor) -> AbstractContextManager[Any]:
    """Without autocast: the few products that we compute are to be in float32."""
    device = tensor.device.type
    if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
        return torch.autocast(device, enabled=False)
    return nullcontext()
