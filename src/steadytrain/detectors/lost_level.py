"""A log ends far above the level that it had reached."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.core.model import Severity, Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import Detector
from steadytrain.statistics.log_levels import Curve, curve_of, rate_explains, stage_changed
from steadytrain.statistics.log_losses import Loss, lost_at_end, lost_between

STAGE_ROWS = 3
TRANSIENT_STEPS = 20
"""Healthy runs may rise in so many first steps."""


@final
@dataclass(frozen=True)
class LostLevel(Detector):
    """The loss of a log loses the progress that it had made.

    Means:
        At the end of the log the loss stands above its own start, at a multiple of the level that it had reached, or
        half of the progress is gone. Or that was so for a sixth of the log, and came back. The detector judges by
        effect and needs five rows; it looks only at whole logs (`steadytrain analyze`).

    Causes:
        - a learning rate that is too high, from the start or from a restart on
        - damaged state: a resume without optimizer moments, weights overwritten, a bad update
        - batches of another kind or of no meaning from some step on
        - no fault: another objective or data stage, a loss that is no measure of progress (GANs, policies)

    Next:
        1. Look at what changed between the best level and `first_step`: rate, data, resume.
        2. Go back to a checkpoint from before; compare a third of the learning rate.
        3. Compare with a healthy log: `steadytrain analyze LOG --compare HEALTHY`.
    """

    needs: ClassVar[tuple[str, ...]] = ("loss",)
    of_logs: ClassVar[bool] = True
    same_event_as: ClassVar[str] = "lost-progress"
    grows: ClassVar[bool] = True
    counts_rising_loss: ClassVar[bool] = True
    spoils_weights: ClassVar[bool] = True

    lost_share: float = threshold(
        0.5, "share of the progress that is lost at the end; cycles of the rate give back less"
    )
    start_share: float = threshold(0.15, "and of the best level, in a log that holds the run's start")
    excerpt_share: float = threshold(0.3, "the same in an excerpt, whose progress before is not known")
    noise_scales: float = threshold(5.0, "and in standard deviations of a row, on a linear or a logarithmic scale")
    passing_share: float = threshold(0.15, "share of the rows for which a loss that came back must have lasted")
    undone_share: float = threshold(0.8, "share of the progress that one which came back must have undone")
    critical_ratio: float = threshold(3.0, "a level multiplied by this is critical, as is one above the start")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        curve = curve_of(window, window.applied("loss"))
        if curve is None or window.facts.get("loss_may_rise"):
            return ()
        floor = self._floor(curve)
        found = lost_at_end(curve, floor=floor, share=self.lost_share, scales=self.noise_scales)
        if found is not None:
            return (self._symptom(window, curve, found, at_end=True),)
        rows = max(2 * curve.tail_rows, int(self.passing_share * len(curve)))
        found = lost_between(curve, floor=floor, share=self.undone_share, scales=self.noise_scales, rows=rows)
        if found is None or int(curve.steps[found.first]) - int(curve.steps[0]) < TRANSIENT_STEPS * curve.starts:
            return ()
        if found.gain < self.excerpt_share * abs(found.best) or found.share < self.undone_share:
            return ()
        return (self._symptom(window, curve, found, at_end=False),)

    def _floor(self, curve: Curve) -> float:
        brief = int(curve.steps[-1]) - int(curve.steps[0]) < TRANSIENT_STEPS
        share = self.start_share if curve.starts and not brief else self.excerpt_share
        return float(share * abs(curve.best[-1]))

    def _symptom(self, window: Window, curve: Curve, found: Loss, *, at_end: bool) -> Symptom:
        first_step, last_step = int(curve.steps[found.first]), int(curve.steps[found.last])
        best_step = int(curve.steps[found.best_row])
        above = curve.starts and found.level > found.initial + self.start_share * abs(found.initial)
        reason = self._reason(window, curve, found) if not above else self._stage(window, curve, found)
        grave: Severity = "critical" if at_end and (above or found.ratio >= self.critical_ratio) else "warning"
        what = "the loss is" if at_end else f"until step {last_step} the loss was"
        told = f"{what} {found.level:.4g} since step {first_step} after {found.best:.4g} at step {best_step}"
        if above:
            told += f", above the {found.initial:.4g} at which the log begins"
        elif found.gain > 0 and found.share < 1:
            told += f": {found.share:.0%} of the progress is lost"
        return Symptom(
            name="lost-level",
            severity="note" if reason else grave,
            first_step=first_step,
            last_step=last_step,
            message=told + (f"; {reason}" if reason else ""),
            signals=("loss",),
            numbers={"loss": found.level, "lowest": found.best, "initial_loss": found.initial, "gain": found.gain},
        )

    def _reason(self, window: Window, curve: Curve, found: Loss) -> str:
        if rate_explains(window, int(curve.steps[found.best_row]), int(curve.steps[found.first])):
            return "the learning rate rose to where it had been before"
        return self._stage(window, curve, found)

    def _stage(self, window: Window, curve: Curve, found: Loss) -> str:
        first = int(curve.steps[max(0, found.best_row - STAGE_ROWS)])
        name = stage_changed(window, first, int(curve.steps[found.first]))
        return f"{name} changed there" if name else ""
