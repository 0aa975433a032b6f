"""An update is far larger than those before it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray

from steadytrain.core.model import Cells, FloatArray, Severity, Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import Detector, Quantity
from steadytrain.statistics.benign_changes import rate_restart
from steadytrain.statistics.table_episodes import (
    APART_STEPS,
    Episode,
    applied_cells,
    before,
    episodes,
    known_first_reading,
    loss_change,
    loss_jump,
)

REFERENCE_READINGS = 16
REFERENCE_READINGS_MIN = 5
GAP_READINGS = 2
NOTHING = -600.0
"""Logarithm of an update over its rate below which there was none."""

SCALE_MIN = 0.05
"""Of the log: very regular updates (sign-like optimizers) have next to no deviation."""


@final
@dataclass(frozen=True)
class UpdateNormSpike(Detector):
    """The update of a step is far larger than those before it, or changes the weights by a tenth.

    Means:
        The weights change by the update that the optimizer computes, not by the gradient. Over all tensors, by itself
        and per unit of learning rate, this update is far larger than those of the readings before: ten times, or three
        times with a jump of the loss right after, unless the learning rate had just risen again to one that it had
        before. Separately, updates that stay above a hundredth of the weights are a
        note (about a thousandth is usual), above a tenth a warning, unless the loss falls meanwhile.

    Causes:
        - the second moment lags behind a gradient that grew (see second-moment-lag)
        - a bad batch without clipping, or clipping that came after the optimizer had seen the gradient
        - optimizer state that was lost on a resume: Adam's first steps are its largest
        - a learning rate too high for these weights, or weights that have shrunk

    Next:
        1. Look at the tensors named: their updates grew most.
        2. Look at the gradient norm of the step. If it did not grow, the state is to blame; if it did, the batch, or
           the weights before it.
        3. Clip gradients, or clip updates (learning rate over max(1, lag)); lower beta2 to 0.95.
        4. For a ratio that lasts: a third of the learning rate, or a longer warm-up.
    """

    needs: ClassVar[tuple[str, ...]] = ("tensors.update_norm",)
    quantity: ClassVar[Quantity | None] = "update_ratio"
    bursts: ClassVar[bool] = True
    spoils_weights: ClassVar[bool] = True

    spike_ratio: float = threshold(3.0, "update norm over the median before it: less is batch noise. Chosen")
    spike_z: float = threshold(8.0, "and this many robust standard deviations of its log: SGD's updates vary more")
    alone_ratio: float = threshold(10.0, "a warning without a jump of the loss: chosen")
    jump_steps: int = threshold(16, "the loss must jump this soon after: twice the lead of 1 to 8 steps (2304.13013)")
    jump_scales: float = threshold(8.0, "robust standard deviations that make a jump of the loss")
    note_ratio: float = threshold(
        1e-2, "ratio of update to weight, over all tensors, for a note: healthy is about 1e-3"
    )
    warning_ratio: float = threshold(
        1e-1, "the same for a warning: a tenth of the weights per step. Healthy small models stay below 0.02"
    )
    fall_scales: float = threshold(
        2.0, "robust standard deviations by which the loss falls meanwhile: large steps that learn are a note. Chosen"
    )
    note_steps: int = threshold(100, "steps that a note lasts: small models move by more in their first ones")
    sustained_readings: int = threshold(3, "readings in a row, 16 steps apart or more, for the ratio to the weights")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        found = (*self._spikes(window), *self._ratio(window))
        return tuple(sorted(found, key=lambda symptom: symptom.first_step))

    def _spikes(self, window: Window) -> list[Symptom]:
        cells = applied_cells(window, "tensors", "update_norm")
        if cells is None or len(cells) <= REFERENCE_READINGS_MIN + GAP_READINGS:
            return []
        sizes = _together(cells.values)
        plain = np.log(np.maximum(sizes, 1e-300))
        logs = plain - np.log(_rates(window, cells))
        rise = np.zeros(len(logs))
        spiked = np.zeros(len(logs), np.bool_)
        at = np.flatnonzero(logs > logs.min() + np.log(self.spike_ratio))
        median, scale = before(logs, at, width=REFERENCE_READINGS, gap=GAP_READINGS, least=REFERENCE_READINGS_MIN)
        rise[at] = np.where(np.isfinite(median), logs[at] - median, 0.0)
        spiked[at] = (rise[at] > np.log(self.spike_ratio)) & (rise[at] > self.spike_z * np.maximum(scale, SCALE_MIN))
        spiked[at] &= ~(median < NOTHING)  # no update so far: the first one is no spike
        # The rate is that of one group. Others may keep theirs while it goes to zero.
        usual, _ = before(plain, at, width=REFERENCE_READINGS, gap=GAP_READINGS, least=REFERENCE_READINGS_MIN)
        spiked[at] &= plain[at] - usual > np.log(self.spike_ratio)
        whole = Cells(cells.steps, ("",), sizes[:, None])
        return [
            self._spike(
                window,
                cells,
                episode.first,
                (episode.first_step, episode.last_step),
                float(np.exp(rise[episode.first : episode.last + 1].max())),
            )
            for episode in episodes(window, whole, spiked[:, None])
        ]

    def _spike(self, window: Window, cells: Cells, at: int, span: tuple[int, int], ratio: float) -> Symptom:
        jump = loss_jump(window, span[0], span[1] + self.jump_steps)
        usual = np.nan_to_num(np.nanmedian(_no_empty(cells.values[max(0, at - REFERENCE_READINGS) : at]), axis=0))
        growth = np.divide(cells.values[at], usual, out=np.zeros(len(usual)), where=usual > 0)
        order = np.argsort(-np.nan_to_num(growth), kind="stable")
        # Where a schedule starts again, often with a new optimizer, the loss jumps by plan.
        planned = rate_restart(window, span[0]) if jump > self.jump_scales and ratio <= self.alone_ratio else None
        grave = ratio > self.alone_ratio or (jump > self.jump_scales and planned is None)
        severity: Severity = "warning" if grave else "note"
        return Symptom(
            name="update-norm-spike",
            severity=severity,
            first_step=span[0],
            last_step=span[1],
            message=f"the update at step {span[0]}, over its learning rate, was {ratio:.3g} times as large as those "
            f"before it; most of all that of {cells.rows[order[0]]}" + (f"; {planned}" if planned else ""),
            signals=("tensors.update_norm",),
            tensors=tuple(cells.rows[row] for row in order[:4] if growth[row] > self.spike_ratio),
            numbers={"ratio": ratio, "loss_jump_scales": jump},
        )

    def _ratio(self, window: Window) -> list[Symptom]:
        updates = applied_cells(window, "tensors", "update_norm", apart_steps=APART_STEPS)
        weights = applied_cells(window, "tensors", "weight_norm", apart_steps=APART_STEPS)
        if updates is None or weights is None:
            return []
        steps, moved, held = updates.steps, updates.values, weights.values
        if not np.array_equal(steps, weights.steps):
            steps, mine, theirs = np.intersect1d(steps, weights.steps, return_indices=True)
            moved, held = moved[mine], held[theirs]
        size = _together(np.where(np.isnan(moved), np.nan, held))
        ratio = np.divide(_together(moved), size, out=np.zeros(len(size)), where=size > 0)
        cells = Cells(steps, ("",), ratio[:, None])
        found = []
        for episode in episodes(window, cells, cells.values > self.note_ratio, readings=self.sustained_readings):
            ratios = np.sort(ratio[episode.first : episode.last + 1])
            lasting = float(ratios[-self.sustained_readings])
            if lasting <= self.warning_ratio and episode.last_step - episode.first_step < self.note_steps:
                continue
            grave = lasting > self.warning_ratio
            if grave:
                episode = _within(window, cells, episode, ratio > self.warning_ratio)
            learns = loss_change(window, episode.first_step, episode.last_step) < -self.fall_scales
            found.append(
                Symptom(
                    name="update-norm-spike",
                    severity="warning" if grave and not learns else "note",
                    first_step=episode.first_step,
                    last_step=episode.last_step,
                    message=f"updates moved the weights by {lasting:.2g} of their norm a step {episode.when()}",
                    signals=("tensors.update_norm", "tensors.weight_norm"),
                    numbers={"update_ratio": lasting},
                )
            )
        return found


def _within(window: Window, cells: Cells, episode: Episode, beyond: NDArray[np.bool_]) -> Episode:
    """The part of ``episode`` from its first reading ``beyond`` a higher bound to its last."""
    at = episode.first + np.flatnonzero(beyond[episode.first : episode.last + 1])
    part = replace(episode, first=int(at[0]), last=int(at[-1]), last_step=int(cells.steps[at[-1]]))
    first_step = known_first_reading(window, cells.steps, part.first, last=part.last)
    return replace(part, first_step=first_step, seen_step=int(cells.steps[at[0]]))


def _together(norms: FloatArray) -> FloatArray:
    """The norm of all tensors together at each reading."""
    known = np.where(np.isfinite(norms), norms, 0.0)
    joined: FloatArray = np.sqrt(np.einsum("ij,ij->i", known, known))
    return joined


def _rates(window: Window, cells: Cells) -> FloatArray:
    """The learning rate at each reading, 1 where nobody knows it or it is zero."""
    rates = window.series("learning_rate")
    if not len(rates):
        return np.ones(len(cells))
    values = rates.values[np.clip(np.searchsorted(rates.steps, cells.steps, side="right") - 1, 0, None)]
    return np.where(np.isfinite(values) & (values > 0), values, 1.0)


def _no_empty(values: FloatArray) -> FloatArray:
    """Rows without any reading as zeros, which NumPy reduces without a warning."""
    filled: FloatArray = np.where(np.isnan(values).all(axis=0), 0.0, values)
    return filled
