"""The largest absolute value of every module's output in one step, in forward order.

The hooks only read. They cost one reduction an output, and one transfer from the device at the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from steadytrain.capture.step.input_recorder import tensors_in
from steadytrain.storage.step_look import ActivationMaxima, ModuleMaximum
from steadytrain.tracing.tensor_summary import largest_absolute, unseen

RUNGS_MAX = 2000
"""Bound on recorded modules. In a larger model the first ones that run are recorded."""


CALLS_MAX = 4
"""Calls of one module in a forward that are recorded apart. Later calls share the last entry."""


@dataclass
class _Seen:
    kind: str
    dtype: torch.dtype
    largest: Tensor


@dataclass(frozen=True)
class StepRungs:
    """One step: each module's class, dtype and largest absolute value, in order."""

    step: int
    values: Mapping[str, tuple[str, torch.dtype, float]]


class ActivationMaximaTaker:
    """Records module outputs between :meth:`begin` and :meth:`end`, in the order in which the calls end."""

    def __init__(self, modules: Mapping[nn.Module, str]) -> None:
        self._modules = dict(modules)
        self._handles: list[RemovableHandle] = []
        self._seen: dict[str, _Seen] = {}
        self._calls: Counter[str] = Counter()
        self._roots = set(modules) - {child for module in modules for child in module.children()}

    def begin(self) -> None:
        self._seen, self._calls = {}, Counter()
        for module, path in self._modules.items():
            try:
                self._handles.append(module.register_forward_hook(self._hook(path)))
            except (RuntimeError, AttributeError):  # scripted modules take no hooks
                continue

    def end(self, step: int) -> StepRungs:
        """Removes the hooks and returns the maxima. A second call returns none."""
        while self._handles:
            self._handles.pop().remove()
        seen, self._seen = self._seen, {}
        return StepRungs(step, {path: (one.kind, one.dtype, float(one.largest)) for path, one in seen.items()})

    def _hook(self, path: str) -> Any:
        def look(module: nn.Module, args: Any, output: Any) -> None:
            if torch.compiler.is_compiling():
                return
            self._calls[path] += 1
            call = min(self._calls[path], CALLS_MAX)
            name = path if call == 1 else f"{path} (call {call})"
            with unseen():
                for tensor in tensors_in(output):
                    self._look(name, type(module).__name__, tensor)
            if module in self._roots:
                self._calls.clear()  # the next micro-batch

        return look

    def _look(self, path: str, kind: str, tensor: Tensor) -> None:
        largest = largest_absolute(tensor)
        if largest is None or not tensor.is_floating_point():
            return
        known = self._seen.get(path)
        if known is None:
            if len(self._seen) < RUNGS_MAX:
                self._seen[path] = _Seen(kind, tensor.dtype, largest)
        elif torch.finfo(tensor.dtype).max <= torch.finfo(known.dtype).max:  # the narrowest dtype of several outputs
            same = tensor.dtype == known.dtype
            known.dtype = tensor.dtype
            known.largest = torch.maximum(known.largest, largest.to(known.largest.device)) if same else largest


def ladder_of(steps: Sequence[StepRungs]) -> ActivationMaxima | None:
    """The maxima over ``steps``, for the modules of the last step; None if that step has none."""
    last = steps[-1] if steps else None
    if last is None or not last.values:
        return None
    rungs = [
        ModuleMaximum(
            module=path,
            kind=kind,
            dtype=str(dtype).removeprefix("torch."),
            limit=float(torch.finfo(dtype).max),
            largest=tuple(step.values[path][2] if path in step.values else None for step in steps),
        )
        for path, (kind, dtype, _) in last.values.items()
    ]
    return ActivationMaxima(tuple(step.step for step in steps), tuple(rungs))
