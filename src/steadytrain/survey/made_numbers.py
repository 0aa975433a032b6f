"""What the script's own operations make in the surveyed steps: numbers that are not finite, or far too large."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from steadytrain.survey import amplified_operations, nonfinite_made

WATCHED = nonfinite_made.WATCHED | amplified_operations.NAMES


class MadeNumbers:
    """Passes the calls to both looks."""

    def __init__(self) -> None:
        self.nonfinite = nonfinite_made.NonfiniteMade()
        self.amplified = amplified_operations.AmplifiedOperations()

    def step_begins(self) -> None:
        """Forgets the tensors of the previous step."""
        self.nonfinite.step_begins()

    def model_called(self) -> None:
        """Reports that the step calls a model."""
        self.nonfinite.model_called()

    def saw(self, name: str, args: Sequence[Any], given: Mapping[str, Any], result: Any, line: str, step: int) -> None:
        self.nonfinite.saw(name, args, given, result, line, step)
        self.amplified.saw(name, args, given, result, line, step, before_model=self.nonfinite.before_model)
