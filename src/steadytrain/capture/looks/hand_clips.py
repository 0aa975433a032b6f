"""How much of a gradient the script leaves between its backward and its update, however it clips.

``clip_grad_norm_`` is measured in every step. A script may scale its gradients itself (``p.grad.mul_(scale)``), which
nothing reports: the norm after a backward is compared with the one at the gate, in every 16th step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import torch

from steadytrain.capture.looks.call_settings import EVERY_STEPS
from steadytrain.capture.looks.held_parameters import is_sharded
from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.capture.tensors.dense import dense_values
from steadytrain.capture.tensors.statistics import l2_norms

WHOLE = 0.999
"""What is left above this share is rounding."""


class HandClips:
    """Serves one stream."""

    def __init__(self) -> None:
        self._norm = math.nan
        self._clips = False

    @torch.no_grad()
    def backward_ended(self, stream: Stream) -> None:
        """A backward has run: this is what it left, with what others had left before it."""
        if stream.own_steps % EVERY_STEPS or is_sharded(stream.parameters):
            return
        gradients = [dense_values(one.grad) for one in stream.parameters if one.grad is not None]
        norms = l2_norms([one for one in gradients if one is not None])
        first = norms[0].device if norms else None
        self._norm = (
            float(torch.linalg.vector_norm(torch.stack([one.to(first, torch.float32) for one in norms])))
            if norms
            else 0.0
        )

    def rows(self, scalars: Mapping[str, float | None], *, scaled: bool) -> Iterator[tuple[str, float]]:
        """The share of the gradient that is left at the gate, and the norm of the whole, once any was taken away.
        ``scaled``: a loss scale is in the gradients of the backward."""
        before, self._norm = self._norm, math.nan
        norm, share = scalars.get("gradient_norm"), scalars.get("clip_coefficient")
        if not norm:
            return  # nothing is left: that is no clip
        if share is None:
            if scaled or not (math.isfinite(before) and before > 0):
                return
            norm, share = before, norm / before
        self._clips = self._clips or share < WHOLE
        if self._clips:
            yield "left-by-clip:gradients", float(share)
            yield "norm-before-clip:gradients", float(norm)
