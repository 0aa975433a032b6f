"""Compares gradients right after an update with what they are when the script discards them: a late clip changes them.

It makes no difference how the script clips (``clip_grad_norm_``, ``grad.clamp_``). Only gradients that became smaller
count. Those that were set to zero, or that another backward was added to, do not. A clip before the backward shows at
the gate: ``clip_grad_norm_`` found no gradients, and now there are some. So does one that was given no parameters, or
only some of those that the optimizer updates.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress

import torch
from torch import Tensor

from steadytrain.capture.hooks.clipping import Clipping
from steadytrain.capture.tensors.dense import dense_values

PARAMETERS_MAX, SAMPLED_MAX = 8, 1024
ROUNDING = 1e-6


class LateClips:
    """Serves one stream: call ``updated`` after an update, and ``zeroed`` when gradients are about to be discarded."""

    def __init__(self) -> None:
        self._held: list[tuple[weakref.ref[Tensor], Tensor]] = []
        self._steps = self._early = self._empty = 0
        self._apart: tuple[str, float] | None = None

    @torch.no_grad()
    def updated(self, parameters: Sequence[Tensor]) -> None:
        found = [(one, _sampled(one)) for one in parameters[:: -(-len(parameters) // PARAMETERS_MAX) or 1]]
        self._held = [(weakref.ref(one), sampled.clone()) for one, sampled in found if sampled is not None]

    @torch.no_grad()
    def zeroed(self) -> None:
        held, self._held = self._held, []
        with suppress(RuntimeError):  # a compiled backward in a CUDA graph takes the memory of its gradients back
            self._steps += any(_is_clipped(one(), before) for one, before in held)

    def gate(
        self, clipping: Clipping, norm: float | None, named: Sequence[tuple[str, Tensor]]
    ) -> Iterator[tuple[str, float]]:
        """The gradients, of this ``norm``, of the ``named`` parameters are about to be applied. The rows so far."""
        self._apart = _unclipped(clipping, named) if norm and clipping.norms else None
        if norm and clipping.given_nothing:
            self._empty += 1
        elif norm and clipping.found_nothing:
            self._early += 1
        yield from self.rows()

    def forget(self) -> None:
        """Another backward adds to the gradients."""
        self._held = []

    def rows(self) -> Iterator[tuple[str, float]]:
        """``clipped-late``, ``clipped-early`` and ``clipped-nothing``: how many looks found each. ``unclipped:NAME`` is
        the share of the parameters with a gradient that no clip of this step was given, ``NAME`` the first of them.
        """
        if self._apart is not None:
            yield f"unclipped:{self._apart[0]}", self._apart[1]
        if self._steps:
            yield "clipped-late:gradients", float(self._steps)
        if self._early:
            yield "clipped-early:gradients", float(self._early)
        if self._empty:
            yield "clipped-nothing:gradients", float(self._empty)


def _unclipped(clipping: Clipping, named: Sequence[tuple[str, Tensor]]) -> tuple[str, float] | None:
    """The first parameter whose gradient was not clipped, and the share of such ones; None if all or none were."""
    trained = [(name, id(one) in clipping.norms) for name, one in named if one.grad is not None]
    left = [name for name, is_clipped in trained if not is_clipped]
    return (left[0], len(left) / len(trained)) if 0 < len(left) < len(trained) else None


def _is_clipped(parameter: Tensor | None, before: Tensor) -> bool:
    now = _sampled(parameter) if parameter is not None else None
    if now is None or now.shape != before.shape or torch.equal(now, before):
        return False
    return _shrank(now, before)


def _sampled(parameter: Tensor) -> Tensor | None:
    gradient = dense_values(parameter.grad) if parameter.grad is not None else None
    if gradient is None:
        return None
    flat = gradient.reshape(-1)
    return flat[:: -(-flat.numel() // SAMPLED_MAX) or 1]


def _shrank(now: Tensor, before: Tensor) -> bool:
    return bool((now.abs() <= before.abs() * (1 + ROUNDING)).all()) and bool((now != 0).any())
