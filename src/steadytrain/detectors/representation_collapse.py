"""Outputs of a module lose their spread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from steadytrain.core.model import Cells, FloatArray, Severity, Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import Aim, Detector
from steadytrain.statistics.table_episodes import APART_STEPS, Episode, applied_cells, episodes, loss_change

MEDIAN_READINGS = 5
"""The spread that a module has had is the highest median of so many readings: one spike does not set it."""


@final
@dataclass(frozen=True)
class RepresentationCollapse(Detector):
    """The outputs of a module lose their spread: all elements approach one number.

    Means:
        The standard deviation of an output fell below a hundredth of its earlier value and stayed there while the loss
        did not fall. The module no longer distinguishes its inputs. The spread is over batch and channels together, so
        embeddings that all equal one vector with different elements are not detected. "critical" means the model's own
        output or half of all modules.

    Causes:
        - contrastive or self-distilled training without a term that keeps outputs apart: negatives, a stop-gradient,
          centring, a variance term
        - weight decay that outweighs the gradient, or a learning rate of zero where decay is decoupled
        - dead units or a saturated activation below (see dead-units)
        - gates, scales or residual weights that went to zero

    Next:
        1. Find the module that collapsed first; did its weights shrink, or its input?
        2. Compare its output for two very different inputs of one batch.
        3. For contrastive training: check the stop-gradient, the temperature and that pairs are not all the same.
        4. Go back before `first_step` with less weight decay or a smaller learning rate.
    """

    needs: ClassVar[tuple[str, ...]] = ("modules.std",)
    aim: ClassVar[Aim] = "progress"
    spoils_weights: ClassVar[bool] = True

    fall_share: float = threshold(
        0.01,
        "ratio of the standard deviation to its earlier maximum below which it has collapsed: "
        "two orders of magnitude; healthy modules vary within one",
    )
    sustained_readings: int = threshold(3, "readings in a row, 16 steps apart or more: one batch may be constant")
    loss_scales: float = threshold(
        1.0,
        "robust standard deviations below its earlier level at which the loss counts as falling: "
        "then it is a note, because outputs of a regression may become small",
    )

    def check(self, window: Window) -> tuple[Symptom, ...]:
        cells = applied_cells(window, "modules", "std", apart_steps=APART_STEPS)
        if cells is None or len(cells) < MEDIAN_READINGS + self.sustained_readings:
            return ()
        # Only a row that holds such a fall at all is worth its running medians.
        fell = np.fmin.reduce(cells.values) < self.fall_share * np.fmax.reduce(cells.values)
        if not fell.any():
            return ()
        beyond = np.zeros(cells.values.shape, np.bool_)
        beyond[:, fell] = cells.values[:, fell] < self.fall_share * _had_before(cells.values[:, fell])
        found = episodes(window, cells, beyond, readings=self.sustained_readings)
        return tuple(self._symptom(window, cells, episode) for episode in found)

    def _symptom(self, window: Window, cells: Cells, episode: Episode) -> Symptom:
        values = cells.values[episode.first : episode.last + 1][:, episode.positions]
        change = loss_change(window, episode.seen_step, episode.last_step)
        severity: Severity = "note" if change < -self.loss_scales else "warning"
        if severity == "warning" and ("" in episode.rows or 2 * len(episode.rows) >= len(cells.rows)):
            severity = "critical"
        before = _had_before(cells.values[:, episode.positions[:1]])[episode.first, 0]
        return Symptom(
            name="representation-collapse",
            severity=severity,
            first_step=episode.first_step,
            last_step=episode.last_step,
            message=f"the standard deviation of {episode.who('modules')} fell to {np.nanmin(values[:, 0]):.3g} "
            f"{episode.when()}, from {before:.3g}",
            signals=("modules.std",),
            tensors=episode.names,
            numbers={
                "std": float(np.nanmin(values[:, 0])),
                "std_before": float(before),
                "modules": float(len(episode.rows)),
                "modules_measured": float(len(cells.rows)),
                "loss_change_scales": change,
            },
        )


def _had_before(values: FloatArray) -> FloatArray:
    """For each reading the highest median of ``MEDIAN_READINGS`` readings before it; 0 where there are too few."""
    medians = np.median(sliding_window_view(np.nan_to_num(values, nan=0.0), MEDIAN_READINGS, axis=0), axis=-1)
    before = np.zeros_like(values)
    before[MEDIAN_READINGS:] = np.maximum.accumulate(medians, axis=0)[:-1]
    return before
