"""Signals of gradient scaling and clipping: the scale, skipped steps, the clip coefficient, the shares of over- and
underflowed gradients, and whether the script clipped gradients that still carried the loss scale.

:class:`Scaling` follows the order of events and receives the numbers of the gate; it reads no tensor. Not here: norms
before clipping (``clipping``), and the gate's reaction to a bad gradient.
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
"""Clips per step whose order is followed; if a script clips each tensor separately, the last ones."""

SAMPLED_ELEMENTS_MAX = 1 << 14
"""Elements per tensor sampled for underflow. For a share of 1 in 1,000, the relative error is about a quarter for one
tensor and far smaller for a model. 26 M elements in 200 tensors: sampled 11 ms on one thread, all elements 87 ms."""


ROUNDING = 1e-5
"""Two norms of the same gradients may differ by this: each sums squares in float32, in its own order."""


@dataclass(frozen=True)
class Clip:
    """One clip of gradients that may still carry a loss scale.

    ``parameters`` are the clipped ones, by id. ``unscaled`` has the ids of each scaler and optimizer that were already
    unscaled. ``limit`` is None if it is not a plain number.
    """

    parameters: frozenset[int]
    unscaled: frozenset[tuple[int, int]]
    limit: float | None


@dataclass(frozen=True)
class Stepping:
    """A scaler that is about to step its optimizer. ``scaled_clips`` came before the unscaling of that optimizer.

    ``unscales_before_gate`` is False for a fused optimizer, which divides by the scale inside its own kernel. Then the
    gate divides both norms.
    """

    scaler: Any
    scaled_clips: tuple[Clip, ...]
    unscales_before_gate: bool


class Scaling:
    """Follows scaling and clipping over one run, with counts for each stream of steps.

    The order of calls in a step: :meth:`clip_begins` for each clip, :meth:`scaler_step_begins`, then at the gate
    :meth:`tensors`, which join its one copy to the host, then :meth:`norm_factor` and :meth:`scalars` with their
    values, then :meth:`scaler_step_ends`.
    """

    def __init__(self) -> None:
        self.scalers: MutableMapping[int, Any] = weakref.WeakValueDictionary()
        """The gradient scalers that have scaled a loss in this run, by id."""

        self.clipped_before_unscaling = 0
        self._note: str | None = None
        self._clips: dict[Clip, None] = {}  # an ordered set; a repeated clip without a step counts once
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
        """The script calls ``scaler.step(optimizer)``; ``optimizer`` may be a wrapper."""
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
        """The 0-d tensors, on any device, whose values :meth:`scalars` needs; none if no scaler is active."""
        scale = SCALE.of(self._stepping.scaler) if self._stepping is not None else None
        return [scale] if isinstance(scale, Tensor) else []

    def norm_factor(self, values: Sequence[float]) -> float:
        """The factor by which to divide norms from before clipping, to get the norms of the unscaled gradients."""
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
        """The signals of the step at the gate.

        Args:
            stream: name of its stream of steps.
            values: the values of :meth:`tensors`.
            before: L2 norms of the clipped tensors before the first clip, divided by :meth:`norm_factor`.
            applied: L2 norms of the same tensors as the optimizer receives them.
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
        """The note for the user about a wrong order of clipping and unscaling, once; else None."""
        note, self._note = self._note, None
        return note

    def _look_at_order(self, scaled_clips: Iterable[Clip], scale: float) -> None:
        # A limit at or above the scale was probably multiplied by it on purpose (or the scale is near 1 and harmless);
        # an infinite limit only computes the norm.
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
    """Norm after clipping over norm before: 1 if clipping changed nothing, also for gradients that are all zero."""
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
        gradients: their values, by position. Only gradients with a non-finite norm are counted, which synchronises.
    """
    count = sum(values.numel() for _, values in gradients)
    if not count:
        return None
    suspects = [values for at, values in gradients if not math.isfinite(norms.get(at, 0.0))]
    states = [exact_state(values) for values in suspects]
    return sum(state.nan + state.inf for state in states) / count


@dataclass(frozen=True)
class Underflow:
    """Counts of underflowed gradient elements, as 0-d tensors that are not fetched yet, and the total ``count``."""

    tensors: list[Tensor]
    count: int

    def share(self, values: Sequence[float]) -> float | None:
        """The share of underflowed elements, given the values of ``tensors``."""
        return math.fsum(values) / self.count if self.count else None


NO_UNDERFLOW = Underflow([], 0)


@torch.no_grad()
def underflow(gradients: Sequence[Tensor], *, scale: Tensor | None, carried: bool) -> Underflow:
    """Count the gradient elements that are zero or below full precision; no synchronisation.

    Without a scaler the limit is the smallest normal number of the gradient's own dtype. With a scaler the backward
    computed scaled values in float16, so the limit is float16's smallest normal number for the scaled value. Large
    tensors are sampled.

    Args:
        scale: the scaler's scale, on any device.
        carried: whether the gradients still carry it (a fused optimizer at the gate).
    """
    counts = []
    for gradient in gradients:
        flat = gradient.detach().reshape(-1) if gradient.is_contiguous() else gradient.detach().flatten()
        if not flat.numel():
            continue
        stride = -(-flat.numel() // SAMPLED_ELEMENTS_MAX) | 1  # odd, else it samples the same few columns of each row
        sample = flat[::stride]
        smallest = torch.finfo(gradient.dtype if scale is None else torch.float16).tiny
        limit: Tensor | float = smallest
        if scale is not None and not carried:
            limit = smallest / scale.to(gradient.device, non_blocking=True)
        small = (sample.abs() < limit).sum(dtype=torch.float32)
        counts.append(small * (flat.numel() / sample.numel()))
    return Underflow(counts, sum(gradient.numel() for gradient in gradients))
