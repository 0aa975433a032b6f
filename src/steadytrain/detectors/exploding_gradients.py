"""Gradients grow without bound, over time or along the depth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from steadytrain.core.model import Cells, FloatArray, IntArray, Series, Severity, Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import Detector, Quantity
from steadytrain.statistics.benign_changes import setting_changed
from steadytrain.statistics.layer_names import profiles
from steadytrain.statistics.medians import median, row_medians
from steadytrain.statistics.rolling_baseline import stride_of
from steadytrain.statistics.table_episodes import (
    APART_STEPS,
    NAMES_MAX,
    episodes,
    known_first_reading,
    loss_change,
    stretches,
)

NOTHING = 1e-290
"""A median of gradient norms below it: there was no gradient."""

BLOCK_STEPS = 16
"""Steps of each median: spikes of less than eight steps do not affect it."""


@final
@dataclass(frozen=True)
class ExplodingGradients(Detector):
    """Gradient norms keep growing while the loss rises, or grow a thousandfold from the last block to the first.

    Means:
        Over time: the median norm of 16 steps rises threefold within 200 steps, or is ten times what it was 64 to 320
        steps earlier, and the loss rises too. It is a note while the norm is below what the run had earlier, or where
        the script passed another number to its model. Clipping hides the growth in the update and delays the failure. A
        norm that grows while the loss falls is no fault: this is normal near the end of a decaying learning rate
        (2506.02285). Along the depth: the first block's gradient is a thousand times the last one's; training may
        survive that with Adam, not with SGD.

    Causes:
        - a learning rate above the edge of stability, or the end of a warm-up that leads there (2103.00065)
        - recurrent or very deep stacks without norms, initialised too large
        - attention logits, output logits or activations that grow (each has its own symptom)
        - optimizer state that was lost or belongs to other parameters
        - for a ratio along depth: residual branches that are not scaled down, post-norm

    Next:
        1. Compare `first_step` with the schedule, and with the first tensors whose norm grew.
        2. Continue from before it at a third of the learning rate. If that cures it, the cause is stability, not data.
        3. Clip by norm at about the healthy median; if the growth only comes later, the cause is still there.
        4. For depth: smaller initialisation by the square root of the number of blocks, pre-norm.
    """

    needs: ClassVar[tuple[str, ...]] = ("gradient_norm", "gradient_norms", "tensors.gradient_norm")
    quantity: ClassVar[Quantity | None] = "gradient_norm"
    bursts: ClassVar[bool] = True
    counts_rising_loss: ClassVar[bool] = True
    grows: ClassVar[bool] = True
    spoils_weights: ClassVar[bool] = True

    trend_steps: int = threshold(200, "steps through which the log of the norm must rise, block by block (AutoTrainer)")
    trend_ratio: float = threshold(3.0, "total growth: medians of 16 healthy steps vary by less than half of it")
    trend_order_share: float = threshold(
        0.85,
        "share of the pairs of medians whose later one is larger: a single step up has at most "
        "three quarters, noise a half",
    )
    level_ratio: float = threshold(10.0, "median norm over the one before, with a rising loss: chosen")
    least_share: float = threshold(
        1e-3,
        "of the largest median before: a run whose gradients fell further has converged, and the "
        "remaining noise varies by powers of ten with the loss (a policy that always wins)",
    )
    critical_ratio: float = threshold(100.0, "the same for a critical symptom: chosen")
    depth_ratio: float = threshold(1e3, "norm of the first block over that of the last one (AutoTrainer, ICSE 2021)")
    inner_ratio: float = threshold(30.0, "the same over the last block but one: the gradient grows block by block")
    loss_scales: float = threshold(4.0, "robust standard deviations by which the loss must have risen meanwhile")
    sustained_readings: int = threshold(4, "readings of the ratio along depth, 16 steps apart or more, in a row")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        return tuple(sorted((*self._over_time(window), *self._along_depth(window)), key=lambda found: found.first_step))

    def _over_time(self, window: Window) -> list[Symptom]:
        norms = window.applied("gradient_norm")
        stride = stride_of(window.steps)
        steps, medians = _medians(norms, BLOCK_STEPS * stride)
        back = max(3, -(-self.trend_steps // (BLOCK_STEPS * stride)))
        if len(steps) < 4 or medians.max() < self.trend_ratio * medians.min():
            return []
        # The median of 16 blocks that ended 4 blocks ago; where the run has just begun its first block fills in.
        filled = np.concatenate([np.full(20, medians[0]), medians])
        before = row_medians(sliding_window_view(filled, 16)[: len(medians)])
        above = medians > self.level_ratio * before
        rising = _rising(medians, back, self.trend_ratio, self.trend_order_share)
        found = []
        for start, stop in stretches(above | rising, hole_max=2):
            first = start
            if rising[start] and not above[start]:  # the growth began at the lowest block of those it took
                first = start - back + int(np.argmin(medians[start - back : start]))
            first_step = known_first_reading(window, steps, first, last=stop - 1)
            if first == start and first_step == steps[first]:
                first_step = _first_above(norms, first_step, self.level_ratio * float(before[start]))
            last_step = int(min(steps[stop - 1] + BLOCK_STEPS * stride - 1, norms.steps[-1]))
            change = loss_change(window, first_step, last_step)
            converged = medians[start:stop].max() < self.least_share * medians[: start + 1].max()
            level = before[start]
            if change < self.loss_scales or converged or level <= NOTHING:
                continue
            ratio = float(medians[start:stop].max() / level)
            reason = None
            if ratio <= self.critical_ratio:
                reason = setting_changed(window, first_step, last_step)
            if medians[start:stop].max() <= medians[:start].max(initial=0.0):
                reason = "earlier in the run it was as large"
            severity: Severity = "critical" if ratio > self.critical_ratio else "warning"
            found.append(
                Symptom(
                    name="exploding-gradients",
                    severity="note" if reason else severity,
                    first_step=first_step,
                    last_step=last_step,
                    message=f"the median gradient norm grew to {medians[start:stop].max():.3g} from step {first_step} "
                    f"to {last_step}, {ratio:.3g} times what it was before, and the loss rises"
                    + (f"; {reason}" if reason else ""),
                    signals=("gradient_norm", "loss"),
                    numbers={"ratio": ratio, "norm_before": float(level), "loss_change_scales": change},
                )
            )
        return found

    def _along_depth(self, window: Window) -> list[Symptom]:
        found = []
        for profile in profiles(window, apart_steps=APART_STEPS):
            ratio = profile.first_to_last()
            inner = profile.first_to_last(before=1)
            ratio = np.where(inner > self.inner_ratio, ratio, 0.0)  # else the last block alone has no gradient
            cells = Cells(profile.steps, (profile.stack.name,), ratio[:, None])
            for episode in episodes(window, cells, cells.values > self.depth_ratio, readings=self.sustained_readings):
                typical = float(np.nanmedian(ratio[episode.first : episode.last + 1]))
                norms = np.nanmedian(profile.norms[episode.first : episode.last + 1], axis=0)
                large = [profile.stack.block(at) for at in np.flatnonzero(norms > self.depth_ratio * norms[-1])]
                found.append(
                    Symptom(
                        name="exploding-gradients",
                        severity="warning",
                        first_step=episode.first_step,
                        last_step=episode.last_step,
                        message=f"the gradient of {profile.stack.spoken(0)} was {typical:.3g} times that of "
                        f"{profile.stack.spoken(len(norms) - 1)} {episode.when()}",
                        signals=("gradient_norms",),
                        tensors=tuple(large[:NAMES_MAX]),
                        numbers={"ratio": typical, "blocks": float(len(norms)), "blocks_above": float(len(large))},
                    )
                )
        return found


def _rising(medians: FloatArray, back: int, ratio: float, order_share: float) -> NDArray[np.bool_]:
    """Blocks up to which the median has risen through ``back`` blocks, by ``ratio`` in all and in order."""
    rising = np.zeros(len(medians), np.bool_)
    if len(medians) <= back:
        return rising
    ends = back + np.flatnonzero(medians[back:] > ratio * medians[:-back])
    runs = sliding_window_view(medians, back + 1)[ends - back]
    later = sum((runs[:, lag:] > runs[:, :-lag]).sum(axis=1) for lag in range(1, back + 1))
    rising[ends] = later >= order_share * (back * (back + 1) / 2)
    return rising


def _first_above(norms: Series, step: int, bound: float) -> int:
    """The first step above ``bound`` of the block that begins at ``step``, or of those right before it that are, too:
    half of a block is enough for its median. ``step`` itself where none is."""
    row = int(np.searchsorted(norms.steps, step))
    found = np.flatnonzero(norms.values[row : row + BLOCK_STEPS] > bound)
    if not len(found):
        return step
    at = row + int(found[0])
    while at > 0 and at > row - BLOCK_STEPS and norms.values[at - 1] > bound:
        at -= 1
    return int(norms.steps[at])


def _medians(norms: Series, block_steps: int) -> tuple[IntArray, FloatArray]:
    """First steps and medians of the whole blocks of ``block_steps`` steps, counted from step 0."""
    if not len(norms):
        return np.zeros(0, np.int64), np.zeros(0)
    block = norms.steps // block_steps
    starts = np.flatnonzero(np.diff(block, prepend=block[0] - 1))
    counts = np.diff(np.append(starts, len(norms)))
    ordered = norms.values[np.lexsort((norms.values, block))]
    medians = np.maximum(ordered[starts + counts // 2], 1e-300)
    whole = counts >= median(counts) / 2
    return norms.steps[starts[whole]], medians[whole]
