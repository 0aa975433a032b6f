"""What the script's own operations make in the surveyed steps: numbers not finite, far too large, or wrapped around."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from steadytrain.survey import amplified_operations, nonfinite_made, wrapped_integers

INTEGERS = wrapped_integers.NAMES
_NUMBERS = nonfinite_made.WATCHED | amplified_operations.NAMES
WATCHED = _NUMBERS | INTEGERS


class MadeNumbers:
    """Passes the calls to the three looks."""

    def __init__(self) -> None:
        self.nonfinite = nonfinite_made.NonfiniteMade()
        self.amplified = amplified_operations.AmplifiedOperations()
        self.wrapped = wrapped_integers.WrappedIntegers()

    def step_begins(self) -> None:
        """Forgets the tensors of the previous step."""
        self.nonfinite.step_begins()

    def model_called(self) -> None:
        """Reports that the step calls a model."""
        self.nonfinite.model_called()

    def before(self, name: str, args: Sequence[Any], given: Mapping[str, Any]) -> None:
        """Reports a call of one of ``INTEGERS`` that is about to be made."""
        self.wrapped.before(name, args, given)

    def saw(self, name: str, args: Sequence[Any], given: Mapping[str, Any], result: Any, line: str, step: int) -> None:
        if name in INTEGERS:
            self.wrapped.saw(name, result, line, step, before_model=self.nonfinite.before_model)
        if name in _NUMBERS:
            self.nonfinite.saw(name, args, given, result, line, step)
            self.amplified.saw(name, args, given, result, line, step, before_model=self.nonfinite.before_model)

    def facts(self, onset: int, own_targets: Callable[[int], bool]) -> dict[str, Any]:
        """The facts of the three: ``nonfinite_made``, ``amplified`` and ``wrapped_integers``."""
        return {
            "nonfinite_made": self.nonfinite.found,
            "amplified": self.amplified.found(onset, own_targets) or None,
            "wrapped_integers": self.wrapped.found(),
        }
