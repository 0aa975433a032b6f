"""The training loop runs on, and its updates have stopped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Severity, Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class StoppedUpdates(ScriptRule):
    """Backward passes go on, but no optimizer has stepped for many of them: the parameters no longer move.

    Means:
        The lines that trained the model before still call backward, many times more often than ever lay between two
        updates, and the parameters have kept their values. The script discards these gradients, so it learns nothing
        more. It is a note where the gradients are not cleared in between, which may be a long accumulation, until there
        are very many; and a note once updates go on. Backward passes of other lines (of an evaluation or an attack) do
        not count.

    Causes:
        - a flag that skips the update is never cleared: a loss scaler of the script's own after its first overflow
        - a condition for the update that is no longer met: a counter that is never reset, a bound for the loss or norm
        - no fault: a last pass that only collects gradients, by the function that also trains

    Next:
        1. Print the condition around `optimizer.step()` at each batch.
        2. A scaler of one's own: clear its flag of an overflow at the start of each step; use `torch.amp.GradScaler`.
        3. Count the updates, and stop where as many batches in a row made none.
    """

    passes_min: int = threshold(64, "backward passes without an update whose gradients were cleared, for a warning")
    kept_passes_min: int = threshold(512, "the same where the gradients were not cleared: a long accumulation ends")
    cleared_share: float = threshold(0.5, "share of the passes before which gradients were cleared, below which not")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        again = {(row.place, int(step)) for row in script_rows(window, "updates-again") for step in row.steps}
        cleared = {row.place: row for row in script_rows(window, "discarded")}
        found = []
        for row in script_rows(window, "without-update"):
            for step in sorted({int(one) for one in row.steps}):
                passes = float(row.values[row.steps == step].max())
                zeroed = cleared.get(row.place)
                share = float(zeroed.values[zeroed.steps == step].max()) / passes if zeroed is not None else 0.0
                went_on = any(place == row.place and after > step for place, after in again)
                found.append(self._symptom(row.place, step, passes, share, went_on=went_on))
        return tuple(sorted(found, key=lambda one: one.first_step))

    def _symptom(self, place: str, step: int, passes: float, share: float, *, went_on: bool) -> Symptom:
        enough = self.passes_min if share >= self.cleared_share else self.kept_passes_min
        severity: Severity = "warning" if passes >= enough and not went_on else "note"
        what = "their gradients were thrown away" if share >= self.cleared_share else "nothing used their gradients"
        end = "; then updates went on" if went_on else ", and the parameters stay as they are: each update is skipped"
        return Symptom(
            name="stopped-updates",
            severity=severity,
            first_step=step,
            last_step=step,
            message=f"after update {step} at least {passes:.0f} backward passes at {place} were followed by no update; "
            f"{what}{end}",
            signals=("script.value",),
            numbers={"passes": passes, "cleared_share": share},
        )
