"""Counts the batches for which a script itself makes no update, and reports them as a symptom."""

from __future__ import annotations

from dataclasses import dataclass

from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.core.model import Severity, Symptom

SCRIPT_ENDED = "the script ended by"
"""How the reason begins where an exception of the script's own ended it."""

ROW_CRITICAL = 3
"""From so many batches in a row without an update, the symptom is critical."""


@dataclass
class LetGo:
    """The batches of one kind without an update: their count, and the first and last step that they would have made.

    ``row`` counts the batches since the last update.
    """

    stream: Stream
    name: str
    what: str
    first_step: int
    last_step: int = 0
    count: int = 0
    row: int = 0
    severity: Severity = "warning"

    def add(self) -> None:
        step = self.stream.step + 1
        self.row = self.row + 1 if step == self.last_step else 1
        self.last_step, self.count = step, self.count + 1

    def symptom(self) -> Symptom:
        """The symptom with the current counts."""
        batches = self.stream.step + 1 - self.first_step + self.count
        if self.count == 1 and self.what.startswith(SCRIPT_ENDED):
            text = f"at step {self.first_step} {self.what}"
        elif self.count == 1:
            text = f"{self.what} at step {self.first_step}, and the script made no update with this batch"
        else:
            text = (
                f"{self.what} at step {self.first_step}; since then the script made no update with {self.count} of "
                f"{batches} batches"
            )
        if self.row >= ROW_CRITICAL:
            text += f"; the last {self.row} came in a row: the model no longer learns"
        return Symptom(
            name=self.name,
            severity=self.severity,
            first_step=self.first_step,
            last_step=self.last_step,
            message=text,
            signals=("loss",) if self.name == "nonfinite-loss" else ("gradient_norm",),
            numbers={"steps": float(self.count), "in_a_row": float(self.row)},
            stream=self.stream.name,
        )
