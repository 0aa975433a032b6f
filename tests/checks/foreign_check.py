"""Checks as another package would bring them."""

from __future__ import annotations

from dataclasses import dataclass

from steadytrain.checks.subject.model_check import Check, Outcome, Subject, failed, passed


@dataclass(frozen=True)
class TooFewRows(Check):
    """A batch has enough rows.

    Means:
        Few rows are noisy.

    Next:
        1. Take more rows.
    """

    rows_min: int = 4

    def inspect(self, subject: Subject) -> Outcome:
        rows = subject.batches[0].rows or 0
        return failed(f"{rows} rows") if rows < self.rows_min else passed(f"{rows} rows")


@dataclass(frozen=True)
class Demanding(Check):
    """Has a field without a default."""

    rows_min: int

    def inspect(self, subject: Subject) -> Outcome:
        return passed("")


@dataclass(frozen=True)
class InitialLoss(Check):
    """Has a name that is taken."""

    def inspect(self, subject: Subject) -> Outcome:
        return passed("")
