"""Attention logits grow beyond what a softmax can use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from steadytrain.core.model import Cells, Severity, Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import Detector
from steadytrain.statistics.table_episodes import APART_STEPS, Episode, applied_cells, episodes


@final
@dataclass(frozen=True)
class AttentionLogitGrowth(Detector):
    """The largest attention logit grows far beyond the useful range of a softmax.

    Means:
        Where one logit is 100 above the others, the softmax is saturated and its gradient is zero: the head cannot
        recover. Queries and keys keep growing, hundreds to thousands of steps before the loss shows it. Above 100 (the
        bound that QK-clip enforces) it is a note; it is a warning if the logit grew to that during the run, or above
        1,000; "critical" is above 10,000, where small models diverged (2302.05442, 2309.14322).

    Causes:
        - a learning rate too high for the query and key projections: their product grows with the square
        - no QK-norm, softcap or QK-clip in a large or long-trained model: the fault is structural then, and no
          optimizer or rebuilt state cured it for long (Kimi K2, 2507.20534; Marin 32B)
        - scores that are not divided by the square root of the head's width, or are scaled twice
        - biased rounding of attention in low precision (2510.04212)

    Next:
        1. Find the layers that grew first, and check whether their entropy falls (attention-entropy-collapse).
        2. To continue this run: QK-clip (tau 100) or a smaller learning rate for query and key projections.
        3. For the next run: QK-norm, or a softcap of 50 on the logits.
        4. Check the scale: at the first step the largest logit should be of the order of one.
    """

    needs: ClassVar[tuple[str, ...]] = ("modules.attention_logit_max",)

    watch_logit_max: float = threshold(100.0, "a note above this: the tau of QK-clip (2507.20534)")
    warning_logit_max: float = threshold(1e3, "a warning even without growth: Kimi K2 reached it without QK-clip")
    critical_logit_max: float = threshold(1e4, "critical: small models diverged from there on (2309.14322)")
    growth_ratio: float = threshold(
        4.0,
        "above 100 it is a warning if it is this many times the smallest recorded reading: "
        "chosen, so that pretrained models with constantly large logits are only a note",
    )
    sustained_readings: int = threshold(
        3, "readings in a row, 16 steps apart or more: the maximum of one batch is noisy"
    )

    def check(self, window: Window) -> tuple[Symptom, ...]:
        cells = applied_cells(window, "modules", "attention_logit_max", apart_steps=APART_STEPS)
        if cells is None:
            return ()
        # An infinite logit is beyond every bound; nonfinite-activation reports its origin.
        found = episodes(window, cells, cells.values > self.watch_logit_max, readings=self.sustained_readings)
        return tuple(self._symptom(cells, episode) for episode in found)

    def _symptom(self, cells: Cells, episode: Episode) -> Symptom:
        values = cells.values[episode.first : episode.last + 1][:, episode.positions]
        # What held for as many readings as a symptom needs, so that one batch alone does not raise the severity.
        peak = np.sort(np.nanmax(values, axis=1))[-min(self.sustained_readings, len(values))]
        smallest = np.nanmin(cells.values[:, episode.positions], axis=0)
        grew = bool((np.nanmax(values, axis=0) >= self.growth_ratio * np.maximum(smallest, 1.0)).any())
        severity: Severity = "critical" if peak > self.critical_logit_max else "note"
        if severity == "note" and (peak > self.warning_logit_max or grew):
            severity = "warning"
        return Symptom(
            name="attention-logit-growth",
            severity=severity,
            first_step=episode.first_step,
            last_step=episode.last_step,
            message=f"the largest attention logit of {episode.who('modules')} stood above {self.watch_logit_max:g} "
            f"{episode.when()} and reached {np.nanmax(values):.4g}",
            signals=("modules.attention_logit_max",),
            tensors=episode.names,
            numbers={
                "logit_max": float(np.nanmax(values)),
                "logit_max_sustained": float(peak),
                "logit_max_smallest_in_view": float(smallest.min()),
                "modules": float(len(episode.rows)),
                "modules_measured": float((~np.isnan(cells.values)).any(axis=0).sum()),
            },
        )
