"""The ten steps of ``debug`` as shown on a terminal and on a page. Pure functions of the document."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from steadytrain.core.own_command import pasteable
from steadytrain.report.wording import clean

LINE_MAX = 300
WIDTH_MIN = 60
_SEVERITIES = {"found": "critical", "done": "silent", "skipped": "note", "not possible": "warning"}


@dataclass(frozen=True)
class StepShown:
    """One step, safe to print. ``lines`` are pairs of a word and a text."""

    number: int
    title: str
    status: str
    severity: str
    lines: tuple[tuple[str, str], ...]
    command: str


@dataclass(frozen=True)
class MethodPart:
    """The steps with their verdict and the command to run next."""

    verdict: str
    command: str
    steps: tuple[StepShown, ...]
    notes: tuple[str, ...]


def part(document: Mapping[str, Any]) -> MethodPart:
    """What is shown of a ``steadytrain.debug/1`` document."""
    return MethodPart(
        verdict=clean(document["verdict"]),
        command=clean(document["next"]),
        steps=tuple(_step(one) for one in document["steps"]),
        notes=tuple(clean(note) for note in document["notes"]),
    )


def _step(step: Mapping[str, Any]) -> StepShown:
    pairs = [
        *([("why", step["why"])] if step["why"] else []),
        *([("did", step["did"])] if step["did"] else []),
        *(("showed" if number == 0 else "", text) for number, text in enumerate(step["showed"])),
        *([("means", step["means"])] if step["means"] else []),
    ]
    status = str(step["status"])
    return StepShown(
        number=int(step["number"]),
        title=clean(step["title"]),
        status=clean(status),
        severity=_SEVERITIES.get(status, "note"),
        lines=tuple((word, clean(text, length_max=LINE_MAX)) for word, text in pairs),
        command=clean(step["next"]),
    )


def as_lines(shown: MethodPart, width: int) -> list[str]:
    """Ten short blocks, and the verdict with the next command as the last lines. Commands are never wrapped."""
    lines: list[str] = []
    for step in shown.steps:
        status = step.status.upper() if step.status == "found" else step.status
        lines.append(f"{step.number:>2}  {step.title}: {status}")
        for word, text in step.lines:
            lines += textwrap.wrap(
                text,
                max(width, WIDTH_MIN),
                initial_indent=f"    {word:<8}",
                subsequent_indent=" " * 12,
                break_on_hyphens=False,
            )
        lines += [f"    next    {pasteable(step.command)}"] if step.command else []
    lines += [f"note: {note}" for note in shown.notes]
    return [*lines, "", shown.verdict, f"next: {pasteable(shown.command)}"]
