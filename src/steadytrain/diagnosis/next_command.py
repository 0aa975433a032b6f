"""The one command that comes after a diagnosis. Pure.

A patch that removed the symptom is written. A cause with a patch for some scripts gets `fix`. Another fix that works
is verified. With nothing to try, the evidence is shown.
"""

from __future__ import annotations

from dataclasses import dataclass

from steadytrain.diagnosis.answer import UNKNOWN, Diagnosis
from steadytrain.diagnosis.fix_order import seen_to
from steadytrain.diagnosis.patches.table import has_recipe


@dataclass(frozen=True)
class NextCommand:
    """``words`` come after ``steadytrain``; ``{incident}`` among them stands for the incident or run."""

    purpose: str
    words: tuple[str, ...]

    def of(self, incident: str) -> str:
        """The command line of ``incident``, a name that is quoted already."""
        return " ".join(("steadytrain", *(word.format(incident=incident) for word in self.words)))


EVIDENCE = NextCommand("the evidence on one page", ("report", "{incident}"))


def after(answer: Diagnosis) -> NextCommand:
    """What to run after ``answer``."""
    if answer.verdict == UNKNOWN or answer.status is None:
        return EVIDENCE
    if answer.patch is not None and answer.patch.effect == "removed":
        return NextCommand("writes the patch into the script", ("fix", "{incident}", "--write"))
    if answer.patch is None and has_recipe(answer.verdict):
        return NextCommand("tries to make a patch, and runs it", ("fix", "{incident}"))
    works = _fix_that_works(answer)
    return NextCommand("the price of the fix", ("verify", "{incident}", "--with", works)) if works else EVIDENCE


def _fix_that_works(answer: Diagnosis) -> str | None:
    """The trial of the first fix that a trial has shown to work, of the first cause."""
    fixes = (fix for cause in answer.diagnoses[:1] for fix in cause.interventions)
    return next((fix.trial for fix in fixes if seen_to(fix) == "works" and fix.trial is not None), None)
