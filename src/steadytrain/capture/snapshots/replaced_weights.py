"""Finds weights that the script loads into a model in the middle of its training, and does not put back.

Before a load, some values of the model's parameters are kept; at the gate of the next update they are compared. What a
later load puts back is no change, and weights that come with the state of their optimizer are a return to a checkpoint.
Not here: whether it is meant (the detector replaced-weights).
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from itertools import islice

import torch
from torch import Tensor, nn

from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.capture.step.script_frames import user_frames
from steadytrain.capture.tensors.dense import dense_values

PARAMETERS_MAX, SAMPLED_MAX = 64, 256
KEPT_MAX = 1024
"""Parameters whose values are kept: those of a target network, which loads in each step and has no update, stay."""

CHANGE_MIN = 1e-6
"""Relative. Less is rounding."""


class ReplacedWeights:
    """Serves all models of a run."""

    def __init__(self) -> None:
        self._before: dict[int, tuple[weakref.ref[Tensor], Tensor]] = {}
        self._place = ""
        self._asked: set[str] = set()
        """The streams that were compared since the last load."""

    @torch.no_grad()
    def load_begins(self, module: nn.Module) -> None:
        """``module`` is about to load weights: keep some values of those it has, unless an earlier load did."""
        self._asked.clear()
        for one in islice(module.parameters(), PARAMETERS_MAX):
            known = self._before.get(id(one))
            if known is None or known[0]() is not one:
                values = sampled(one)
                if values is not None:
                    self._before[id(one)] = weakref.ref(one), values.clone()
        while len(self._before) > KEPT_MAX:
            del self._before[next(iter(self._before))]
        frames = user_frames()
        self._place = frames[0].place if frames else type(module).__name__

    def optimizer_loaded(self) -> None:
        """An optimizer was given a state: the script goes back to a checkpoint, or begins with one."""
        self._before.clear()

    @torch.no_grad()
    def rows(self, stream: Stream) -> Iterator[tuple[str, float]]:
        """``weights-replaced:LINE``, at the gate of ``stream``: how far its weights are from those it had.

        The norm of the difference over the norm of the weights before, in the values that were kept. None before the
        first update: a training begins with what it loads. Reads the device once, after a load.
        """
        if not self._before or stream.name in self._asked:
            return
        self._asked.add(stream.name)
        kept = [self._before.pop(id(one), None) for one in stream.parameters]
        if stream.own_steps == 0:
            return
        changes, norms = [], []
        for held in kept:
            now = sampled(one) if held is not None and (one := held[0]()) is not None else None
            if held is not None and now is not None and now.shape == held[1].shape and now.device == held[1].device:
                changes.append((now.float() - held[1].float()).square().sum())
                norms.append(held[1].float().square().sum())
        if not changes:
            return
        device = changes[0].device
        change, norm = (torch.stack([one.to(device) for one in of]).sum() for of in (changes, norms))
        share = float((change / norm.clamp_min(1e-38)).sqrt())
        if share > CHANGE_MIN:
            yield f"weights-replaced:{self._place}", share


def sampled(parameter: Tensor, most: int = SAMPLED_MAX) -> Tensor | None:
    """Evenly spaced values of a tensor, about ``most`` of them, without a copy; None for kinds without values."""
    values = dense_values(parameter.detach())
    if values is None or not values.numel():
        return None
    flat = values.reshape(-1)
    return flat[:: -(-flat.numel() // most) | 1]
