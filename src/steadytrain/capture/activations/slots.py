"""The slots that compiled graphs write, and the hooks that hold them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.jit import ScriptModule

from steadytrain.capture.activations.columns import DTYPES
from steadytrain.capture.activations.compiled import MODULES_MAX
from steadytrain.capture.in_graph import DTYPES_IN_GRAPH, SlotHook, new_slot


class Slots:
    """Of all modules inside compiled code, in the order in which they were put on."""

    def __init__(self) -> None:
        self._slots: dict[int, Tensor] = {}
        self._modules: list[nn.Module] = []  # alive as long as their ids stand for them
        self._removes: list[Callable[[], None]] = []

    def put_on(self, compiled: nn.Module, how: Mapping[str, Any]) -> None:
        """Before the first trace of ``compiled``. Its own output is seen from outside, so it gets none itself.

        Graphs that are replayed as CUDA graphs get none: what they may write to is not up to us.
        """
        device = next((parameter.device for parameter in compiled.parameters()), torch.device("cpu"))
        if device.type == "cuda" and replays(how):
            return
        for module in compiled.modules():
            if module is compiled or id(module) in self._slots or isinstance(module, ScriptModule):
                continue
            if len(self._slots) >= MODULES_MAX:
                break
            own = next((parameter.device for parameter in module.parameters()), device)
            slot = new_slot(own)
            self._slots[id(module)] = slot
            self._modules.append(module)
            self._removes.append(module.register_forward_hook(SlotHook(slot)).remove)

    def empty(self) -> None:
        """Forget what was written."""
        for slot in self._slots.values():
            slot.zero_()

    def copies(self, paths: Mapping[int, str]) -> dict[str, Tensor]:
        """What was written, by path; ``paths`` is by the id of the module."""
        return {paths[key]: slot.clone() for key, slot in self._slots.items() if key in paths}

    def remove(self) -> None:
        while self._removes:
            self._removes.pop()()
        self._slots = {}
        self._modules = []


def slot_row(numbers: list[float]) -> dict[str, float]:
    """Columns of a module from what ``in_graph`` puts in its slot; empty if nothing was written. What is not finite is
    told as one element: how many they are is not counted there."""
    mean, mean_square, abs_max, code = numbers
    if not code:
        return {}
    dtype = DTYPES_IN_GRAPH[int(code) - 1]
    row = {"dtype": float(DTYPES.index(str(dtype).removeprefix("torch.")))}
    if not math.isfinite(abs_max):
        return {**row, "nonfinite": 1.0}
    variance = mean_square - mean * mean
    std = math.sqrt(variance) if variance > 0 else math.nan
    headroom = abs_max / torch.finfo(dtype).max
    return {**row, "nonfinite": 0.0, "mean": mean, "std": std, "abs_max": abs_max, "headroom": headroom}


def replays(how: Mapping[str, Any]) -> bool:
    """Whether these arguments of ``torch.compile`` ask for CUDA graphs."""
    from torch._inductor import config

    options = how.get("options") or {}
    asked = how.get("mode") in ("reduce-overhead", "max-autotune") or how.get("backend") == "cudagraphs"
    return bool(asked or options.get("triton.cudagraphs") or config.triton.cudagraphs)
