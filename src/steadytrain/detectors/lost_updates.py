"""Updates are too small for the number format of the weights, and are rounded away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from steadytrain.core.model import Cells, Severity, Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import Aim, Detector
from steadytrain.statistics.script_rows import ScriptRow, script_rows
from steadytrain.statistics.table_episodes import APART_STEPS, Episode, applied_cells, episodes, is_coarse


@final
@dataclass(frozen=True)
class LostUpdates(Detector):
    """Updates are rounded away: weights stay bit for bit the same though they have a gradient.

    Means:
        An update smaller than half the distance to the next number of the weight's format does nothing at all. In
        bfloat16, with 8 bits, that is a 512th of the weight: at a learning rate of 1e-5 and weights around 0.02 about
        84 % of all updates of Adam are lost, and a gain of 1.0 does not move for updates below 2e-3. Training goes on
        silently and learns less. "critical" means that half of the tensors lose half of their updates. In float32 it is
        only a note: there the updates themselves are tiny.

    Causes:
        - weights held in bfloat16 or float16 without a copy in float32 that the optimizer updates (2010.06192)
        - the learning rate has become too small for such weights, late in a schedule or in fine-tuning
        - gains of norms, which stay near 1, held in bfloat16: they need larger steps than any other tensor
        - no fault: stochastic rounding and Kahan summation make up for it. Where the optimizer holds what was rounded
          away, or the weights move all the same over 64 updates, this is a note

    Next:
        1. Check the fact `precision` of the run: parameters in bfloat16 mean that there is no float32 copy.
        2. Keep the parameters in float32 and let autocast do the rest, or use an optimizer with float32 copies.
        3. If memory does not allow that: stochastic rounding or Kahan summation; norms and biases in float32.
        4. Compare some hundred steps from one checkpoint: with float32 weights the loss must move further.
    """

    needs: ClassVar[tuple[str, ...]] = ("tensors.unchanged_share",)
    aim: ClassVar[Aim] = "progress"

    unchanged_share: float = threshold(
        0.4,
        "share of the elements with a gradient that stay unchanged, above which a tensor is named. "
        "Measured (a small residual net in bfloat16, AdamW, zoo/layers): at a rate of 3e-3 20 to 28 % are lost, "
        "the smallest, and the loss equals that of float32; at 3e-4 72 %, and the loss is worse; at 1e-4 89 %",
    )
    most_unchanged_share: float = threshold(
        0.5, "a median tensor above it is critical: most of what is learned is lost"
    )
    sustained_readings: int = threshold(
        3, "readings in a row, 16 steps apart or more: one reading may have a tiny gradient"
    )
    learning_rate_share: float = threshold(
        0.01,
        "readings below this share of the largest recorded learning rate do not count: where a "
        "schedule touches zero, updates vanish in every dtype",
    )

    kept_share: float = threshold(
        0.5, "share of the weights whose optimizer state holds what was rounded away, from which it is a note"
    )

    unmoved_share: float = threshold(
        0.2,
        "share of the weights that are as they were 64 updates before, below which it is a note: 0.16 at most where "
        "rounding is random, 0.26 and more where updates are lost (a small network in bfloat16)",
    )

    def check(self, window: Window) -> tuple[Symptom, ...]:
        cells = applied_cells(window, "tensors", "unchanged_share", apart_steps=APART_STEPS)
        if cells is None or not (cells.values > self.unchanged_share).any():
            return ()
        cells = self._at_work(window, cells)
        coarse = is_coarse(window)
        bound = self.unchanged_share if coarse else self.most_unchanged_share
        found = episodes(window, cells, cells.values > bound, readings=self.sustained_readings)
        kept = next((row for row in script_rows(window, "remainders-kept") if row.last >= self.kept_share), None)
        moved = next((row for row in script_rows(window, "unmoved") if row.last < self.unmoved_share), None)
        return tuple(self._symptom(cells, episode, coarse, kept, moved) for episode in found)

    def _at_work(self, window: Window, cells: Cells) -> Cells:
        """The readings at which the learning rate was not as good as zero."""
        rates = window.series("learning_rate")
        if not len(rates):
            return cells
        at = np.clip(np.searchsorted(rates.steps, cells.steps, side="right") - 1, 0, None)
        kept = rates.values[at] > self.learning_rate_share * np.nanmax(rates.values)
        return Cells(cells.steps[kept], cells.rows, cells.values[kept])

    def _symptom(
        self, cells: Cells, episode: Episode, coarse: bool, kept: ScriptRow | None, moved: ScriptRow | None
    ) -> Symptom:
        shares = cells.values[episode.first : episode.last + 1]
        median = float(np.nanmedian(shares))
        worst = float(np.nanmax(np.nanmedian(shares[:, episode.positions], axis=0)))
        grave: Severity = "critical" if median > self.most_unchanged_share else "warning"
        severity: Severity = "note" if not coarse or kept is not None or moved is not None else grave
        later = ""
        if kept is not None:
            later = f"; {kept.place} keeps what was rounded away, and adds it later"
        elif moved is not None:
            later = (
                f"; but over 64 updates all except {moved.last:.0%} of the elements move: they are rounded at random"
            )
        return Symptom(
            name="lost-updates",
            severity=severity,
            first_step=episode.first_step,
            last_step=episode.last_step,
            message=f"up to {worst:.0%} of the elements of {episode.who('tensors')} kept their bits through an update "
            f"{episode.when()}, {median:.0%} in the median tensor{later}",
            signals=("tensors.unchanged_share",),
            tensors=episode.names,
            numbers={
                "tensors": float(len(episode.rows)),
                "tensors_measured": float(len(cells.rows)),
                "unchanged_share_worst": worst,
                "unchanged_share_median": median,
                "low_precision": float(coarse),
                "kept": float(kept is not None),
                "moved": float(moved is not None),
            },
        )
