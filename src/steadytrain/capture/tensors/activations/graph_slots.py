"""Manages the slots that compiled graphs write, and the hooks that hold them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.jit import ScriptModule

from steadytrain.capture.hooks.module_hooks import hook_after
from steadytrain.capture.tensors.activations.compiled import MODULES_MAX, can_be_called
from steadytrain.capture.tensors.activations.module_columns import DTYPES
from steadytrain.capture.tensors.in_graph import DTYPES_IN_GRAPH, IN_SLOT, SlotHook, new_slot
from steadytrain.core.torch_private import CUDA_GRAPHS, FOREACH_ZERO


class Slots:
    """The slots of all modules inside compiled code, in the order in which they were added."""

    def __init__(self) -> None:
        self._slots: dict[int, Tensor] = {}
        self._modules: list[nn.Module] = []  # kept alive because ``_slots`` uses their ids
        self._removes: list[Callable[[], None]] = []

    def put_on(self, compiled: nn.Module, how: Mapping[str, Any]) -> None:
        """Add slots to the modules inside ``compiled``, before its first trace. Its own output is visible from outside.

        Graphs that run as CUDA graphs get no slots, because we do not control the memory that they may write.
        """
        device = next((parameter.device for parameter in compiled.parameters()), torch.device("cpu"))
        if device.type == "cuda" and replays(how):
            return
        for module in compiled.modules():
            if module is compiled or id(module) in self._slots or not can_be_called(module):
                continue
            if isinstance(module, ScriptModule):
                continue
            if len(self._slots) >= MODULES_MAX:
                break
            slot = new_slot(_device(module, device))
            self._slots[id(module)] = slot
            self._modules.append(module)
            self._removes.append(hook_after(module, SlotHook(slot)).remove)

    def reaches(self, module: nn.Module) -> bool:
        """Whether a graph can write the statistics of ``module``: it has a slot, on its own device."""
        slot = self._slots.get(id(module))
        return slot is not None and slot.device == _device(module, slot.device)

    def empty(self) -> None:
        """Clear all slots."""
        slots = list(self._slots.values())
        if slots:
            FOREACH_ZERO(slots)

    def written(self, paths: Mapping[int, str]) -> dict[str, Tensor]:
        """The slots themselves, by path; ``paths`` maps module ids to paths. The next forward overwrites them."""
        return {paths[key]: slot for key, slot in self._slots.items() if key in paths}

    def remove(self) -> None:
        while self._removes:
            self._removes.pop()()
        self._slots = {}
        self._modules = []


def slot_row(numbers: list[float]) -> dict[str, float]:
    """The columns of a module from its slot (``in_graph``); empty if nothing was written.

    Values that float32 could not hold, such as a sum, are absent.
    """
    found = dict(zip(IN_SLOT, numbers, strict=True))
    code = int(found.pop("dtype"))
    if not code:
        return {}
    dtype = DTYPES_IN_GRAPH[code - 1]
    if math.isnan(found["mean"]) and not found["abs_max"]:  # no element is finite
        found["abs_max"] = found["zero_share"] = math.nan
    found["headroom"] = found["abs_max"] / torch.finfo(dtype).max
    row = {"dtype": float(DTYPES.index(str(dtype).removeprefix("torch.")))}
    return {**row, **{name: value for name, value in found.items() if math.isfinite(value)}}


def _device(module: nn.Module, otherwise: torch.device) -> torch.device:
    return next((parameter.device for parameter in module.parameters()), otherwise)


def replays(how: Mapping[str, Any]) -> bool:
    """Whether these arguments of ``torch.compile`` request CUDA graphs."""
    options = how.get("options") or {}
    asked = how.get("mode") in ("reduce-overhead", "max-autotune") or how.get("backend") == "cudagraphs"
    return bool(asked or options.get("triton.cudagraphs") or CUDA_GRAPHS.now())
