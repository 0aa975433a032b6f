"""Positions and frequencies in float32, also in 16-bit models."""

from __future__ import annotations

import re
import weakref
from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import Tensor, nn

from steadytrain.core.torch_private import BUFFERS
from steadytrain.trial_runs.changes import LiveChange
from steadytrain.trial_runs.function_stand_ins import ATTENTION
from steadytrain.trial_runs.launched_script import Launched

HALVES = (torch.float16, torch.bfloat16)
NAMED = re.compile(
    r"(^|_)(pos|position|positions|place|places|freq|freqs|inv_freq|rope|rotary|sin|cos|sinusoid)(_|s|$)"
)
"""Common names of buffers with positions, frequencies, sines and cosines."""

TABLES_MAX = 256


@final
@dataclass
class Float32Positions(LiveChange):
    """``torch.arange`` in 16 bits becomes float32, and position buffers keep the values of their registration.

    They overwrite a snapshot's values. Modules and attention with 16 bits still get 16-bit inputs.
    """

    is_early = True
    nothing = "no positions are made or kept in 16 bits"
    _tables: list[tuple[weakref.ref[nn.Module], str, Tensor]] = field(default_factory=list, init=False, repr=False)

    def early(self, process: Launched) -> None:
        arange, register, call = torch.arange, nn.Module.register_buffer, nn.Module.__call__
        change = self

        def exact(*args: Any, **kwargs: Any) -> Tensor:
            if kwargs.get("dtype") in HALVES:
                change.touch()
                kwargs["dtype"] = torch.float32
            return arange(*args, **kwargs)

        def registered(self: nn.Module, name: str, tensor: Tensor | None, *args: Any, **kwargs: Any) -> None:
            register(self, name, tensor, *args, **kwargs)
            known = isinstance(tensor, Tensor) and tensor.is_floating_point() and NAMED.search(name.lower())
            if known and tensor is not None and len(change._tables) < TABLES_MAX:
                change._tables.append((weakref.ref(self), name, tensor.detach().float().clone()))

        def called(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
            weight = self._parameters.get("weight")
            if weight is not None and weight.dtype in HALVES:
                args = tuple(_narrowed(value, weight.dtype) for value in args)
            return call(self, *args, **kwargs)

        torch.arange = exact
        nn.Module.register_buffer = registered  # type: ignore[method-assign]
        nn.Module.__call__ = called  # type: ignore[method-assign]

    def begin(self, process: Launched) -> None:
        for held, name, table in self._tables:
            module = held()
            now = BUFFERS.of(module).get(name) if module is not None else None
            if module is None or now is None or now.shape != table.shape:
                continue
            right = table.to(now.device)
            if now.dtype in HALVES or not torch.equal(now.float(), right):
                self.touch()
                BUFFERS.of(module)[name] = right
        process.functions.replace(ATTENTION, _in_one_format)


def _in_one_format(original: Any, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Casts queries and keys, which a float32 table may have widened, to the dtype of 16-bit values."""
    if value.dtype in HALVES:
        query, key = query.to(value.dtype), key.to(value.dtype)
    return original(query, key, value, *args, **kwargs)


def _narrowed(value: Any, to: torch.dtype) -> Any:
    return value.to(to) if isinstance(value, Tensor) and value.dtype == torch.float32 else value
