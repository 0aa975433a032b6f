"""Reads whether weights in 16 bits stay as they are over many updates, and not over a single one only.

An optimizer that rounds at random moves a weight in few of its updates, but on average by what the update is; a weight
that is rounded to the nearest number stays for good. Measured after 64 updates on a small network in bfloat16 (rates of
1e-4 to 3e-3, median tensor): at most 0.16 of the weights are as they were where rounding is random, 0.26 to 0.89 where
updates are lost and the loss is worse for it.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from steadytrain.capture.looks.kept_remainders import AT_STEPS, SAMPLED_MAX, half_weights, remainder_rows
from steadytrain.capture.step.optimizer_streams import Stream

APART_UPDATES = 64
"""Updates between two readings that are compared."""


class HalfWeights:
    """The weights in 16 bits of one stream."""

    def __init__(self) -> None:
        self._held: list[Tensor] = []
        self._held_at = 0

    def rows(self, stream: Stream) -> Iterator[tuple[str, float]]:
        """``remainders-kept:CLASS``, and ``unmoved:CLASS``: the share of a sample of each weight that is as it was at
        least 64 updates before, of the median weight. Reads the device once, and only in the steps that are due and
        where there are such weights."""
        step = stream.own_steps
        if step in AT_STEPS:
            yield from remainder_rows(stream)
        if step % APART_UPDATES == AT_STEPS[0]:
            yield from self._compared(stream, step)

    @torch.no_grad()
    def _compared(self, stream: Stream, step: int) -> Iterator[tuple[str, float]]:
        now = [_sample(one) for one in half_weights(stream)]
        before, passed = self._held, step - self._held_at
        self._held, self._held_at = now, step
        same = [
            one.shape == other.shape and one.device == other.device for one, other in zip(before, now, strict=False)
        ]
        if now and len(before) == len(now) and all(same) and passed >= APART_UPDATES:
            shares = torch.stack(
                [(one == other).float().mean().to("cpu") for one, other in zip(before, now, strict=True)]
            )
            yield f"unmoved:{type(stream.optimizers[0]).__name__}", float(shares.median())


def _sample(weight: Tensor) -> Tensor:
    every = -(-weight.numel() // SAMPLED_MAX) | 1
    return weight.detach().reshape(-1)[::every].clone()
