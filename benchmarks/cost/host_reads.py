"""How often the host asks for a number of a tensor: on a GPU each time is a wait for all that was sent before.

Counted are ``item()`` and what becomes one (``float``, ``bool``, comparisons in an ``if``), copies by ``cpu()``, and
``tolist()`` of a tensor in a function that has not called ``cpu()`` before. On the CPU the numbers are the same as they
would be elsewhere, as far as the tool does the same there.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

_ITEM = "aten::_local_scalar_dense"
_WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize")
_BLOCKING_COPY = "Memcpy DtoH (Device -> Pageable)"


class Count:
    """Filled when the counting ends. ``waits`` are synchronisations of the driver, None without a GPU."""

    reads = 0
    waits: int | None = None


@contextmanager
def counting() -> Iterator[Count]:
    """Count between here and there, on every thread for ``item`` and on this one for the rest."""
    found, copies = Count(), _Copies()
    activities = [torch.profiler.ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with copies.counted(), torch.profiler.profile(activities=activities) as profile:
        yield found
    seen = {event.key: event.count for event in profile.key_averages()}
    found.reads = seen.get(_ITEM, 0) + copies.count
    if torch.cuda.is_available():
        found.waits = sum(seen.get(name, 0) for name in (*_WAITS, _BLOCKING_COPY))


class _Copies:
    def __init__(self) -> None:
        self.count = 0
        self._copied: set[tuple[int, Any]] = set()

    @contextmanager
    def counted(self) -> Iterator[None]:
        base = torch._C.TensorBase
        cpu, tolist = base.cpu, base.tolist

        def counted_cpu(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            self.count += 1
            self._copied.add(_caller())
            return cpu(tensor, *args, **kwargs)

        def counted_tolist(tensor: torch.Tensor) -> Any:
            self.count += _caller() not in self._copied
            return tolist(tensor)

        torch.Tensor.cpu, torch.Tensor.tolist = counted_cpu, counted_tolist  # type: ignore[assignment,method-assign]
        try:
            yield
        finally:
            del torch.Tensor.cpu, torch.Tensor.tolist


def _caller() -> tuple[int, Any]:
    frame = sys._getframe(2)
    return id(frame), frame.f_code
