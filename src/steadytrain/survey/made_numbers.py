"""What the script's own operations make in the surveyed steps: numbers not finite, far too large, wrapped around or
rounded away, changes of copies that nobody reads, and what custom functions keep and overwrite."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from steadytrain.survey import (
    amplified_operations,
    cancelled_variances,
    nonfinite_made,
    rounded_differences,
    wrapped_integers,
)
from steadytrain.survey.cancelled_variances import CancelledVariances
from steadytrain.survey.custom_contexts import CustomContexts
from steadytrain.survey.discarded_writes import DiscardedWrites

INTEGERS = wrapped_integers.NAMES
_NUMBERS = nonfinite_made.WATCHED | amplified_operations.NAMES
WATCHED = _NUMBERS | INTEGERS | rounded_differences.NAMES | cancelled_variances.NAMES


class MadeNumbers:
    """Passes the calls to the looks."""

    def __init__(self) -> None:
        self.nonfinite = nonfinite_made.NonfiniteMade()
        self.amplified = amplified_operations.AmplifiedOperations()
        self.wrapped = wrapped_integers.WrappedIntegers()
        self.rounded = rounded_differences.RoundedDifferences()
        self.variances = CancelledVariances()
        self.discarded = DiscardedWrites()
        self.contexts = CustomContexts()

    def step_begins(self) -> None:
        """Forgets the tensors of the previous step."""
        self.nonfinite.step_begins()
        self.discarded.step_begins()
        self.contexts.step_begins()

    def model_called(self) -> None:
        """Reports that the step calls a model."""
        self.nonfinite.model_called()

    def before(self, name: str, args: Sequence[Any], given: Mapping[str, Any]) -> None:
        """Reports a call of one of ``INTEGERS`` that is about to be made."""
        self.wrapped.before(name, args, given)

    def saw(self, name: str, args: Sequence[Any], given: Mapping[str, Any], result: Any, line: str, step: int) -> None:
        if name in INTEGERS:
            self.wrapped.saw(name, result, line, step, before_model=self.nonfinite.before_model)
        if name in rounded_differences.NAMES:
            self.rounded.saw(name, args, given, result, line, step)
        if name in cancelled_variances.NAMES:
            self.variances.saw(name, args, result, line, step)
        if name in _NUMBERS:
            self.nonfinite.saw(name, args, given, result, line, step)
            self.amplified.saw(name, args, given, result, line, step, before_model=self.nonfinite.before_model)

    def facts(self, onset: int, own_targets: Callable[[int], bool]) -> dict[str, Any]:
        """The facts of all looks, by name."""
        return {
            "nonfinite_made": self.nonfinite.found,
            "amplified": self.amplified.found(onset, own_targets) or None,
            "wrapped_integers": self.wrapped.found(),
            "rounded_differences": self.rounded.found(),
            "cancelled_variances": self.variances.found(),
            "discarded_writes": self.discarded.found(),
            "overwritten_contexts": self.contexts.found(),
        }
