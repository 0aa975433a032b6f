"""The gradient scaler and clipping, as signals of a step: the scale, skips, how far gradients were clipped, how many of
them over- or underflowed, and whether the script clipped gradients that still carried the loss scale.

:class:`Scaling` follows the order of events and is told the numbers of the gate; it reads no tensor by itself. Not
here: norms before clipping (``clipping``) and what the gate does about a bad gradient.
"""

from __future__ import annotations

import math
import weakref
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.amp.grad_scaler import OptState

from steadytrain.capture.tensors.statistics import exact_state, global_norm
from steadytrain.core.torch_private import FUSED_UNSCALES, SCALE, SCALER_STATES

CLIPS_MAX = 256
"""Clips of a step whose order is followed; of a script that clips each tensor by itself, the last ones."""

SAMPLED_ELEMENTS_MAX = 1 << 14
"""Elements of a tensor that are looked at for underflow: a share of 1 in 1,000 of one tensor is then known to about a
quarter, and of a whole model far better. 26 M elements in 200 tensors: 11 ms on one thread, all of them 87 ms."""


ROUNDING = 1e-5
"""Two norms of the same gradients may differ by this: each sums squares in float32, in an order of its own."""


@dataclass(frozen=True)
class Clip:
    """One clip while a scale may be on the gradients.

    ``parameters`` are those it clipped, by id. ``unscaled`` holds scaler and optimizer, by id, of what had been
    unscaled by then. ``limit`` is None where it is no plain number.
    """

    parameters: frozenset[int]
    unscaled: frozenset[tuple[int, int]]
    limit: float | None


@dataclass(frozen=True)
class Stepping:
    """A scaler that is about to step its optimizer. ``scaled_clips`` happened before that optimizer was unscaled.

    ``unscales_before_gate`` is False for a fused optimizer, which divides by the scale inside its own kernel; there the
    gate divides both norms.
    """

    scaler: Any
    scaled_clips: tuple[Clip, ...]
    unscales_before_gate: bool


class Scaling:
    """Over one run. The counts are kept for each stream of steps.

    The order of calls in a step: :meth:`clip_begins` for each clip, :meth:`scaler_step_begins`, then at the gate
    :meth:`tensors`, which join its one copy to the host, then :meth:`norm_factor` and :meth:`scalars` with their
    values, then :meth:`scaler_step_ends`.
    """

    def __init__(self) -> None:
        self.scalers: MutableMapping[int, Any] = weakref.WeakValueDictionary()
        """The gradient scalers that have scaled a loss in this run, by id."""

        self.clipped_before_unscaling = 0
        self._note: str | None = None
        self._clips: dict[Clip, None] = {}  # a set in order; a clip that no step follows is there once
        self._stepping: Stepping | None = None
        self._skips: Counter[str] = Counter()
        self._clipped: Counter[str] = Counter()
        self._clips_seen: set[str] = set()

    def clip_begins(self, parameters: Iterable[Tensor], scalers: Collection[Any], *, limit: float | None) -> None:
        """The script clips these gradients, by norm or by value. ``scalers`` have scaled a loss in this run."""
        scalers = [scaler for scaler in scalers if scaler.is_enabled()]
        if not scalers:
            return
        clipped = frozenset(id(parameter) for parameter in parameters if parameter.grad is not None)
        unscaled = frozenset(
            (id(scaler), optimizer)
            for scaler in scalers
            for optimizer, state in SCALER_STATES.of(scaler).items()
            if state["stage"] is not OptState.READY
        )
        self._clips[Clip(clipped, unscaled, limit)] = None
        if len(self._clips) > CLIPS_MAX:
            del self._clips[next(iter(self._clips))]

    def scaler_step_begins(self, scaler: Any, optimizer: Any) -> None:
        """``scaler.step(optimizer)``, with the optimizer as the script gave it (a wrapper perhaps)."""
        self._stepping = None
        if not scaler.is_enabled():
            return
        own = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        key = (id(scaler), id(optimizer))
        state = SCALER_STATES.of(scaler).get(id(optimizer))
        fused = FUSED_UNSCALES.on(optimizer, False)
        self._stepping = Stepping(
            scaler,
            tuple(clip for clip in self._clips if clip.parameters & own and key not in clip.unscaled),
            unscales_before_gate=not fused or (state is not None and state["stage"] is OptState.UNSCALED),
        )
        self._clips = {clip: None for clip in self._clips if not clip.parameters & own}

    def scaler_step_ends(self) -> None:
        self._stepping = None

    def tensors(self) -> list[Tensor]:
        """What :meth:`scalars` needs on the host: 0-d, on any device, none where no scaler is at work."""
        scale = SCALE.of(self._stepping.scaler) if self._stepping is not None else None
        return [scale] if isinstance(scale, Tensor) else []

    def norm_factor(self, values: Sequence[float]) -> float:
        """What norms read before clipping have to be divided by, so that they are those of the true gradients."""
        stepping = self._stepping
        if stepping is None or not stepping.scaled_clips or not stepping.unscales_before_gate or not values:
            return 1.0
        return values[0] or 1.0

    def scalars(
        self,
        stream: str,
        values: Sequence[float],
        *,
        before: Collection[float],
        applied: Collection[float],
        skipped: bool,
    ) -> dict[str, float | None]:
        """The signals of the step that is at the gate.

        Args:
            stream: name of its stream of steps.
            values: those of :meth:`tensors`.
            before: L2 norms before the first clip of the tensors that were clipped, divided by :meth:`norm_factor`.
            applied: L2 norms of the same tensors as the optimizer gets them.
            skipped: whether the scaler skips this step.
        """
        stepping, scale = self._stepping, (values[0] if values else None)
        norm_before = global_norm(list(before))
        if stepping is not None:
            self._skips[stream] += skipped
            if scale is not None and norm_before > 0:
                self._look_at_order(stepping.scaled_clips, scale)
        coefficient = None
        if before:
            self._clips_seen.add(stream)
            if not skipped:
                coefficient = clip_coefficient(norm_before, global_norm(list(applied)))
                self._clipped[stream] += coefficient < 1.0
        return {
            "loss_scale": scale,
            "scaler_skips": float(self._skips[stream]) if stepping is not None else None,
            "clip_coefficient": coefficient,
            "clip_count": float(self._clipped[stream]) if stream in self._clips_seen else None,
        }

    def take_note(self) -> str | None:
        """What is to be told of the order of clipping and unscaling, once."""
        note, self._note = self._note, None
        return note

    def _look_at_order(self, scaled_clips: Iterable[Clip], scale: float) -> None:
        # A limit at least as large as the scale was multiplied by it, as a script may do on purpose (or the scale is
        # near 1 and nothing is lost); an infinite one only asks for the norm.
        wrong = [clip for clip in scaled_clips if clip.limit is not None and clip.limit < scale]
        if not wrong:
            return
        self.clipped_before_unscaling += 1
        if self.clipped_before_unscaling == 1:
            limit = wrong[0].limit
            assert limit is not None
            self._note = (
                f"gradients are clipped while they still carry the loss scale of {scale:g}: the limit of {limit:g} "
                f"acts as {limit / scale:.2g}; call scaler.unscale_(optimizer) before clipping"
            )


def clip_coefficient(before: float, applied: float) -> float:
    """Norm after clipping over norm before: 1 where clipping changed nothing, also of gradients that are all zero."""
    if before == 0.0:
        return 1.0
    if not math.isfinite(before):
        return 0.0 if applied == 0.0 else math.nan
    coefficient = applied / before
    return 1.0 if coefficient > 1.0 - ROUNDING else coefficient


def overflow_share(norms: Mapping[int, float], gradients: Sequence[tuple[int, Tensor]]) -> float | None:
    """Share of gradient elements that are NaN or Inf; None without gradients.

    Args:
        norms: L2 norm of each gradient, by position.
        gradients: their values, by position. They are counted, which synchronises, only where the norm is not finite.
    """
    count = sum(values.numel() for _, values in gradients)
    if not count:
        return None
    suspects = [values for at, values in gradients if not math.isfinite(norms.get(at, 0.0))]
    states = [exact_state(values) for values in suspects]
    return sum(state.nan + state.inf for state in states) / count


@dataclass(frozen=True)
class Underflow:
    """Gradient elements that have underflowed, as 0-d tensors that are still to be fetched, and elements in all."""

    tensors: list[Tensor]
    count: int

    def share(self, values: Sequence[float]) -> float | None:
        """The share, given the values of ``tensors``."""
        return math.fsum(values) / self.count if self.count else None


@torch.no_grad()
def underflow(gradients: Sequence[Tensor], *, scale: Tensor | None, carried: bool) -> Underflow:
    """How many elements of the gradients are zero or too small for their full precision; nothing is synchronised.

    Without a scaler that is below the smallest normal number of the gradient's own dtype. With one, the backward ran
    in float16 and multiplied by the scale: an element is too small when it was below float16's smallest normal number
    there. Large tensors are sampled.

    Args:
        scale: the scaler's, on any device.
        carried: whether the gradients still carry it (a fused optimizer at the gate).
    """
    counts = []
    for gradient in gradients:
        flat = gradient.detach().reshape(-1) if gradient.is_contiguous() else gradient.detach().flatten()
        if not flat.numel():
            continue
        stride = -(-flat.numel() // SAMPLED_ELEMENTS_MAX) | 1  # odd, or it would hit the same few columns of each row
        sample = flat[::stride]
        smallest = torch.finfo(gradient.dtype if scale is None else torch.float16).tiny
        limit: Tensor | float = smallest
        if scale is not None and not carried:
            limit = smallest / scale.to(gradient.device, non_blocking=True)
        small = (sample.abs() < limit).sum(dtype=torch.float32)
        counts.append(small * (flat.numel() / sample.numel()))
    return Underflow(counts, sum(gradient.numel() for gradient in gradients))
