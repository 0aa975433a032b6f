"""Finds the symptom detectors, and tells what each is for.

The detectors are the plug-ins of ``steadytrain.detectors``. Not here: running one.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from steadytrain.core.errors import UsageError
from steadytrain.core.plugins import (
    SECTIONS,
    Broken,
    Threshold,
    kebab,
    nearest,
    split_docstring,
    threshold_rows,
    thresholds_of,
)
from steadytrain.detectors import DETECTORS, Detector


@dataclass(frozen=True)
class Explanation:
    """What a detector's docstring and fields say. A section that a third-party docstring lacks is empty."""

    name: str
    summary: str
    means: str
    causes: str
    next: str
    thresholds: tuple[Threshold, ...]
    needs: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": "steadytrain.explanation/1",
            "name": self.name,
            "summary": self.summary,
            "means": self.means,
            "causes": self.causes,
            "next": self.next,
            "thresholds": [threshold.to_json() for threshold in self.thresholds],
            "needs": list(self.needs),
        }


def detectors() -> tuple[Detector, ...]:
    """Every usable detector with its default thresholds: the shipped ones by name, then those of other packages."""
    return tuple(cls() for cls in DETECTORS.classes())


def broken() -> tuple[Broken, ...]:
    """The detectors of other packages that :func:`detectors` left out."""
    return DETECTORS.broken()


def detector_name(cls: type[Detector]) -> str:
    """The kebab name that every place derives: ``LossSpike`` is ``loss-spike`` in ``detectors/loss_spike.py``."""
    return kebab(cls)


def explanations() -> tuple[Explanation, ...]:
    """The explanation of every usable detector."""
    return tuple(explanation_of(detector) for detector in detectors())


def explanation(name: str) -> Explanation:
    """The explanation of the detector called ``name``.

    Raises:
        UsageError: there is none of that name; the message lists those that are near.
    """
    known = {entry.name: entry for entry in explanations()}
    if name in known:
        return known[name]
    raise UsageError(f"nothing is called {name!r}; {nearest(name, known)} (`steadytrain explain` lists all)")


def explain(name: str) -> str:
    """Plain text for a terminal: the docstring of ``name`` and its thresholds with their values.

    Raises:
        UsageError: there is none of that name; the message lists those that are near.
    """
    found = explanation(name)
    parts = [f"{found.name}: {found.summary}"]
    for title, text in _sections(found):
        parts.append(f"{title}:\n{indented(text)}")
    if found.thresholds:
        lines = [indented(_wrap(f"{t.name} = {t.value}: {t.about}.")) for t in found.thresholds]
        parts.append("Thresholds:\n" + "\n".join(lines))
    if found.needs:
        parts.append(f"Reads: {', '.join(found.needs)}")
    return "\n\n".join(parts) + "\n"


def catalog_page() -> str:
    """The page ``docs/symptoms.md``: every shipped detector, in Markdown."""
    entries = [explanation_of(detector) for detector in (cls() for cls in DETECTORS.shipped())]
    lines = [
        "<!-- Generated from the detectors' docstrings. To write it anew:",
        "python -c 'from steadytrain.grouping.catalog import catalog_page; print(catalog_page(), end=\"\")'"
        " > docs/symptoms.md",
        "-->",
        "",
        "# Symptoms",
        "",
        "What steadytrain looks for in a run. `steadytrain explain NAME` prints the same in a terminal.",
        "",
        "| symptom | |",
        "|---|---|",
        *(f"| [{entry.name}](#{entry.name}) | {entry.summary} |" for entry in entries),
    ]
    for entry in entries:
        lines += ["", f"## {entry.name}", "", entry.summary]
        for title, text in _sections(entry):
            lines += ["", f"### {title}", "", text]
        lines += threshold_rows(entry.thresholds)
        lines += ["", f"Reads: {', '.join(f'`{signal}`' for signal in entry.needs)}."]
    return "\n".join(lines) + "\n"


def explanation_of(detector: Detector) -> Explanation:
    """The explanation of one detector, with the values that it has."""
    summary, sections = split_docstring(inspect.cleandoc(type(detector).__doc__ or ""))
    return Explanation(
        name=detector_name(type(detector)),
        summary=summary,
        means=sections.get("Means", ""),
        causes=sections.get("Causes", ""),
        next=sections.get("Next", ""),
        thresholds=thresholds_of(detector),
        needs=tuple(detector.needs),
    )


# The docstring as parts.


def _sections(entry: Explanation) -> Iterator[tuple[str, str]]:
    texts = (entry.means, entry.causes, entry.next)
    return ((title, text) for title, text in zip(SECTIONS, texts, strict=True) if text)


def indented(text: str) -> str:
    """``text`` two spaces to the right."""
    return "\n".join(f"  {line}".rstrip() for line in text.splitlines())


def _wrap(text: str) -> str:
    return textwrap.fill(text, width=110, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
