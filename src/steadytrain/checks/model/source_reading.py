"""Whether the source of the script holds a mistake that is known by sight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

from steadytrain.checks.subject.model_check import Check, Cost, Outcome, Subject, failed, not_run, passed, warned
from steadytrain.core.plugins import threshold


@final
@dataclass(frozen=True)
class SourceReading(Check):
    """The source of the script holds none of the mistakes that a reviewer knows by sight.

    Means:
        Some mistakes show in no number of a short run: images and masks that are flipped by separate draws, a scaler
        that is fitted before the split, a best model that is kept by reference. The check reads the functions that run
        and the modules beside them, as a watch does in its first step, and names the line. It goes by usual English
        names and proves nothing: look at the line.

    Causes:
        - the symptom that each line stands for has its own (`steadytrain explain NAME`)

    Next:
        1. Read the named line. Where it is meant, leave the check out: `--skip source-reading`.
    """

    cost: ClassVar[Cost] = "free"
    source: ClassVar[str] = "docs/decisions/2026-11-source-is-read.md"

    shown_max: int = threshold(3, "mistakes that the message lists")

    def inspect(self, subject: Subject) -> Outcome:
        found: list[dict[str, str]] | None = subject.observed.get("source")
        if found is None:
            return not_run("no source was read; run `steadytrain preflight SCRIPT` for this")
        if not found:
            return passed("no mistake that is known by sight was read in the source")
        numbers: dict[str, Any] = {"found": found}
        shown = [f"{one['message']} ({one['name']})" for one in found[: self.shown_max]]
        more = [f"{len(found) - self.shown_max} more"] if len(found) > self.shown_max else []
        grave = any(one["severity"] != "note" for one in found)
        return (failed if grave else warned)("; ".join([*shown, *more]), **numbers)
