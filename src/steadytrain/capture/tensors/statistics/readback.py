"""Transfers numbers from devices to the host: at once from the CPU, asynchronously from a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import torch
from torch import Tensor

from steadytrain.capture.tensors.statistics.quiet import quiet

T = TypeVar("T")


class Readback(Generic[T]):
    """A result that is computed from small tensors once they have arrived.

    CUDA tensors are copied to pinned memory on a separate stream; an event signals their arrival. Call :meth:`ready`
    one step later, and :meth:`result` when it returns True. ``result`` waits if necessary.

    Args:
        tensors: contiguous, on any devices; nothing may write to them afterwards.
        finish: computes the result from the same tensors on the host.
    """

    def __init__(self, tensors: Sequence[Tensor], finish: Callable[[list[Tensor]], T]) -> None:
        self._finish = finish
        self._sent = list(tensors)  # alive until the copy has ended
        self._arriving: list[Tensor] = []
        self._events: list[torch.cuda.Event] = []
        for tensor in self._sent:
            self._arriving.append(self._send(tensor) if tensor.device.type == "cuda" else tensor)

    def ready(self) -> bool:
        """Whether :meth:`result` will not wait."""
        return all(event.query() for event in self._events)  # type: ignore[no-untyped-call]

    def result(self) -> T:
        for event in self._events:
            event.synchronize()
        with quiet():
            return self._finish([tensor.cpu() for tensor in self._arriving])

    def _send(self, tensor: Tensor) -> Tensor:
        stream = _side_stream(tensor.device)
        stream.wait_stream(torch.cuda.current_stream(tensor.device))
        host = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=True)
        with torch.cuda.stream(stream):
            host.copy_(tensor, non_blocking=True)
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record(stream)
        tensor.record_stream(stream)
        self._events.append(event)
        return host


_STREAMS: dict[torch.device, torch.cuda.Stream] = {}


def _side_stream(device: torch.device) -> torch.cuda.Stream:
    """One stream per device, created at its first use."""
    if device not in _STREAMS:
        _STREAMS[device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    return _STREAMS[device]
