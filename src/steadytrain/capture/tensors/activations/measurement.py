"""One measurement in progress: the statistics of each module's outputs, as small vectors on their devices."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from steadytrain.capture.tensors.activations import attention, logits, outputs
from steadytrain.capture.tensors.activations.graph_slots import slot_row
from steadytrain.capture.tensors.activations.module_columns import COLUMNS
from steadytrain.capture.tensors.activations.module_rows import Call, Heads, heads_row, module_row
from steadytrain.capture.tensors.activations.outputs import Look, first_floating, plain_values
from steadytrain.capture.tensors.statistics import HISTOGRAM_COLUMNS, Readback
from steadytrain.core.model import Reading
from steadytrain.core.torch_private import IS_FUNCTORCH, VERSION

CALLS_MAX = 8
"""Measured calls per module: a recurrent cell that runs once per token would otherwise be measured for every token."""


@dataclass(frozen=True)
class Taken:
    """A finished measurement.

    Args:
        modules: the table "modules".
        histograms: rows ``activation:<module>`` of the table "histograms", if requested.
        dtypes: dtype of each module's output.
        logits: dtype of the logits that the model returns; None if unknown.
        classes: last dimension of the logits; None if unknown.
        loss_input: dtype of the input of ``cross_entropy``; None if unknown.
        silent_slots: whether there are slots for compiled graphs, and none was written.
    """

    modules: Reading
    histograms: Reading | None
    dtypes: Mapping[str, str]
    logits: str | None
    classes: int | None
    loss_input: str | None
    silent_slots: bool


@dataclass(frozen=True)
class Part:
    """A part of a row's numbers, on their device."""

    kind: Literal["output", "heads", "slot", "log_z"]
    path: str
    values: Tensor
    dtype: torch.dtype | None = None


class Measurement:
    """Receives outputs and function calls during the forward; measures them at once and keeps none."""

    def __init__(self, *, histograms: bool) -> None:
        self.histograms = histograms
        self.logits_dtype: str | None = None
        self.loss_input: str | None = None
        self._looks: dict[str, list[Look]] = {}
        self._heads: dict[str, list[Tensor]] = {}
        self._slots: dict[str, Tensor] = {}
        self._owner: dict[str, int] = {}
        self._logits: tuple[str, int, Tensor] | None = None
        self._last: tuple[Callable[[], Tensor | None], int, Look] | None = None
        self._last_scores: Callable[[], Tensor | None] = lambda: None

    @property
    def saw_something(self) -> bool:
        return bool(self._looks or self._logits)

    @property
    def paths(self) -> frozenset[str]:
        """The paths of modules whose outputs were measured by hooks."""
        return frozenset(self._looks)

    @property
    def paths_with_heads(self) -> frozenset[str]:
        """The paths of modules whose attention scores were measured."""
        return frozenset(path for path, calls in self._heads.items() if calls)

    def see_output(self, path: str, module: int, output: Any) -> None:
        """The module at ``path`` returned ``output``. The id ``module`` separates it from a wrapper at that path."""
        if self._owner.setdefault(path, module) != module or len(self._looks.get(path, ())) >= CALLS_MAX:
            return
        tensor = first_floating(output)
        if tensor is None:
            return
        look = self._look(tensor)
        if look is not None:
            self._looks.setdefault(path, []).append(look)

    def see_model_output(self, path: str, output: Any) -> None:
        """The script's own call of a module returned ``output``, which may contain logits."""
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
        """Measure logits. Of several tensors, the one with the most classes counts."""
        if tensor.dim() and (self._logits is None or tensor.shape[-1] > self._logits[1]):
            values = plain_values(tensor)
            log_z = logits.look_at_logits(values) if values is not None else None
            if log_z is not None:
                self._logits = (path, tensor.shape[-1], log_z)

    def see_loss_input(self, path: str, tensor: Tensor) -> None:
        """The script called ``cross_entropy`` with ``tensor``."""
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
        """The script called ``scaled_dot_product_attention``; arguments have torch's names."""
        if self._has_heads(path) or not all(_is_plain(one) for one in (query, key, attn_mask) if one is not None):
            return
        scale = others.get("scale")
        self._keep_heads(path, attention.look_at_queries(query, key, mask=attn_mask, is_causal=is_causal, scale=scale))

    def see_softmax(self, path: str, module_class: str, values: Any, dimension: Any) -> None:
        """The script called a softmax, which may belong to attention."""
        if self._has_heads(path) or self._last_scores() is values or not _is_plain(values):
            return
        if attention.is_softmax_of_scores(values, dimension, module_class):
            self._last_scores = weakref.ref(values)
            self._keep_heads(path, attention.look_at_scores(values))

    def see_slots(self, slots: Mapping[str, Tensor]) -> None:
        """The slots that compiled graphs wrote, for modules that hooks could not reach."""
        self._slots = {path: slot for path, slot in slots.items() if path not in self._looks}

    def send(self, order: Sequence[str]) -> Readback[Taken]:
        """Send the numbers to the host. The result is the finished measurement, with rows in the model's order."""
        looks = {path: list(calls) for path, calls in self._looks.items()}
        parts = [
            *(Part("output", path, look.values, look.dtype) for path, calls in looks.items() for look in calls),
            *(Part("heads", path, values) for path, calls in self._heads.items() for values in calls),
            *(Part("slot", path, values) for path, values in self._slots.items()),
            *([Part("log_z", self._logits[0], self._logits[2])] if self._logits else []),
        ]
        bins = {path: sum_of(calls) for path, calls in looks.items() if calls[0].bins is not None}
        devices = list(dict.fromkeys(part.values.device for part in parts))
        joined = [torch.cat([part.values for part in parts if part.values.device == device]) for device in devices]

        def finish(arrived: list[Tensor]) -> Taken:
            numbers = {device: iter(values.tolist()) for device, values in zip(devices, arrived, strict=False)}
            seen = [(part, [next(numbers[part.values.device]) for _ in range(part.values.numel())]) for part in parts]
            return Taken(
                _table(order, seen),
                _histograms(list(bins), arrived[len(devices) :]) if bins else None,
                {path: dtype_name(calls[-1].dtype) for path, calls in looks.items()},
                self.logits_dtype,
                self._logits[1] if self._logits else None,
                self.loss_input,
                bool(self._slots) and not any(numbers[-1] for part, numbers in seen if part.kind == "slot"),
            )

        return Readback([*joined, *bins.values()], finish)

    def _look(self, tensor: Tensor) -> Look | None:
        """Measure ``tensor``. A container often returns its last child's tensor object, which is measured only once."""
        if self._last is not None and self._last[0]() is tensor and self._last[1] == VERSION.of(tensor):
            return self._last[2]
        values = plain_values(tensor)
        if values is None or not values.numel():
            return None
        look = outputs.look(values, histogram=self.histograms)
        self._last = (weakref.ref(tensor), VERSION.of(tensor), look)
        return look

    def _keep_heads(self, path: str, heads: Tensor | None) -> None:
        calls = self._heads.setdefault(path, [])
        if heads is not None:
            calls.append(heads)

    def _has_heads(self, path: str) -> bool:
        """Whether so many attention calls of the module are measured that a further one would only cost time."""
        return len(self._heads.get(path, ())) >= CALLS_MAX


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _is_plain(tensor: Any) -> bool:
    """Whether ``tensor`` is a plain torch tensor with values. The values of other kinds may mean something else."""
    if type(tensor) not in (Tensor, torch.nn.Parameter) or tensor.layout != torch.strided:
        return False
    return tensor.device.type != "meta" and not IS_FUNCTORCH(tensor)


def sum_of(calls: Sequence[Look]) -> Tensor:
    """The sum of the histograms of all calls. Assumes that all outputs of a module are on one device."""
    return torch.stack([look.bins for look in calls if look.bins is not None]).sum(0)


@np.errstate(all="ignore")
def _table(order: Sequence[str], seen: Sequence[tuple[Part, list[float]]]) -> Reading:
    """The table "modules": one row for each path with a measurement."""
    calls: dict[str, list[Call]] = {}
    heads: dict[str, list[Heads]] = {}
    rows: dict[str, dict[str, float]] = {path: {} for path in order}
    for part, numbers in seen:
        row = rows.setdefault(part.path, {})
        if part.kind == "output":
            assert part.dtype is not None
            call = Call(dtype_name(part.dtype), torch.finfo(part.dtype).max, *numbers)
            calls.setdefault(part.path, []).append(call)
        elif part.kind == "heads":
            heads.setdefault(part.path, []).append(Heads(*numbers))
        elif part.kind == "slot":
            row.update(slot_row(numbers))
        else:
            row.update(zip(logits.ON_DEVICE, numbers, strict=True))
    for path, of_module in calls.items():
        rows[path].update(module_row(of_module))
    for path, of_heads in heads.items():
        rows[path].update(heads_row(of_heads))
    rows = {path: row for path, row in rows.items() if row}
    values = [[row.get(column, math.nan) for column in COLUMNS] for row in rows.values()]
    return Reading("modules", tuple(rows), tuple(COLUMNS), np.array(values, np.float32).reshape(-1, len(COLUMNS)))


def _histograms(paths: Sequence[str], counts: Sequence[Tensor]) -> Reading:
    values = np.stack([bins.numpy() / bins.sum().item() for bins in counts]).astype(np.float32)
    return Reading("histograms", tuple(f"activation:{path}" for path in paths), HISTOGRAM_COLUMNS, values)
