"""Finds gradients that are cleared after the backward and before the step that should apply them."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from steadytrain.capture.looks.held_parameters import is_sharded
from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.capture.step.script_frames import user_frames
from steadytrain.capture.tensors.dense import dense_values


class ClearedGradients:
    """Serves one stream: call ``zeroed`` when gradients are about to be discarded, ``forget`` at each backward."""

    def __init__(self) -> None:
        self._place = ""
        self._steps = 0

    def zeroed(self, stream: Stream) -> None:
        if not is_sharded(stream.parameters) and _has_gradients(stream):
            frames = user_frames()
            self._place = frames[0].place if frames else ""

    def forget(self) -> None:
        self._place = ""

    def gate(self, stream: Stream) -> Iterator[tuple[str, float]]:
        """A step is about to be made. ``cleared-gradients:LINE`` counts the looks at which a line had cleared the
        gradients since the backward, and each gradient was missing or zero."""
        place, self._place = self._place, ""
        if place and not _has_gradients(stream):
            self._steps += 1
            yield f"cleared-gradients:{place}", float(self._steps)


@torch.no_grad()
def _has_gradients(stream: Stream) -> bool:
    """Whether any is not zero; one that cannot be read counts."""
    values = (dense_values(one.grad) for one in stream.parameters if one.grad is not None)
    return any(one is None or bool(one.any()) for one in values)
