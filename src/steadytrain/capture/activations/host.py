"""Small vectors on their way from devices to the host: one copy a device, started early and read late."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class HostCopies:
    """Starts the copies on construction. On a CUDA device nothing waits until :meth:`values`."""

    def __init__(self, vectors: Sequence[Tensor]) -> None:
        self._lengths = [len(vector) for vector in vectors]
        self._device_of = [vector.device for vector in vectors]
        self._copies: dict[torch.device, Tensor] = {}
        self._events: list[torch.cuda.Event] = []
        for device in dict.fromkeys(self._device_of):
            joined = torch.cat([vector for vector in vectors if vector.device == device])
            self._copies[device] = self._start(joined)

    def values(self) -> list[list[float]]:
        """The vectors' numbers, in their order."""
        for event in self._events:
            event.synchronize()
        numbers = {device: iter(copy.tolist()) for device, copy in self._copies.items()}
        pairs = zip(self._lengths, self._device_of, strict=True)
        return [[next(numbers[device]) for _ in range(length)] for length, device in pairs]

    def _start(self, joined: Tensor) -> Tensor:
        if joined.device.type != "cuda":
            return joined.to("cpu")
        with torch.cuda.device(joined.device):
            host = torch.empty(joined.shape, dtype=joined.dtype, pin_memory=True)
            host.copy_(joined, non_blocking=True)
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record()
        self._events.append(event)
        return host
