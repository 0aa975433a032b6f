"""Attention falls onto single keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from steadytrain.core.model import Cells, Severity, Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import Detector
from steadytrain.statistics.table_episodes import APART_STEPS, Episode, applied_cells, episodes, loss_change


@final
@dataclass(frozen=True)
class AttentionEntropyCollapse(Detector):
    """The entropy of attention falls to almost nothing: each query attends to one key.

    Means:
        The entropy of a module's attention, averaged over heads and queries, fell below a tenth of a nat and was far
        higher earlier. A saturated softmax makes gradients vanish or jump; sharp dips of the entropy come at or before
        oscillations of the loss (2303.06296). A few sharp heads are normal and do not bring the mean this low.
        "critical": at least half of the attention modules, and the loss rises. While the loss falls it is a note.

    Causes:
        - attention logits that grow (see attention-logit-growth)
        - a learning rate that is too high, or too short a warm-up, for query and key projections
        - a learned temperature or scale that runs away
        - no fault: the task is solved by copying one position

    Next:
        1. Compare with the largest attention logit of the same modules: it should have grown first.
        2. Lower the learning rate of query and key projections, or warm up longer.
        3. QK-norm, or spectral reparametrisation of the projections (2303.06296), for the next run.
    """

    needs: ClassVar[tuple[str, ...]] = ("modules.attention_entropy",)
    spoils_weights: ClassVar[bool] = True

    entropy_nats: float = threshold(
        0.1,
        "mean over heads and queries below which attention has collapsed: 0.1 nat is 98 % on one key. "
        "Chosen; trained models keep 0.5 to 3 nats in a layer's mean",
    )
    fall_ratio: float = threshold(5.0, "the largest recorded reading must be this many times the current one")
    sustained_readings: int = threshold(
        3, "readings in a row, 16 steps apart or more: a batch of short rows has low entropy"
    )
    loss_scales: float = threshold(
        1.0, "robust standard deviations below its earlier level at which the loss counts as falling"
    )

    def check(self, window: Window) -> tuple[Symptom, ...]:
        cells = applied_cells(window, "modules", "attention_entropy", apart_steps=APART_STEPS)
        if cells is None:
            return ()
        beyond = cells.values < self.entropy_nats
        if not beyond.any():
            return ()
        highest = np.nanmax(np.where(np.isnan(cells.values).all(axis=0), 0.0, cells.values), axis=0)
        beyond &= highest >= self.fall_ratio * self.entropy_nats
        found = episodes(window, cells, beyond, readings=self.sustained_readings)
        return tuple(self._symptom(window, cells, episode) for episode in found)

    def _symptom(self, window: Window, cells: Cells, episode: Episode) -> Symptom:
        values = cells.values[episode.first : episode.last + 1][:, episode.positions]
        measured = int((~np.isnan(cells.values)).any(axis=0).sum())
        change = loss_change(window, episode.seen_step, episode.last_step)
        severity: Severity = "warning" if change > -self.loss_scales else "note"
        if change > self.loss_scales and 2 * len(episode.rows) >= measured:
            severity = "critical"
        return Symptom(
            name="attention-entropy-collapse",
            severity=severity,
            first_step=episode.first_step,
            last_step=episode.last_step,
            message=f"the entropy of attention in {episode.who('modules')} fell to {np.nanmin(values):.2g} nats "
            f"{episode.when()}, from up to {np.nanmax(cells.values[:, episode.positions]):.3g}",
            signals=("modules.attention_entropy",),
            tensors=episode.names,
            numbers={
                "entropy": float(np.nanmin(values)),
                "entropy_highest_in_view": float(np.nanmax(cells.values[:, episode.positions])),
                "modules": float(len(episode.rows)),
                "modules_measured": float(measured),
                "loss_change_scales": change,
            },
        )
