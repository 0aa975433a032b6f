"""Finds the causes, and tells what each is.

The causes are the plug-ins of ``steadytrain.diagnosis.causes``.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from steadytrain.core.errors import UsageError
from steadytrain.core.plugins import Broken, Kind, kebab, nearest, split_docstring
from steadytrain.diagnosis.cause import Cause, Intervention
from steadytrain.grouping.catalog import indented

WIDTH = 110
PROMISED = ("base_rate", "expects", "interventions", "grade", "source")


def _lacks(cls: type[Cause]) -> str | None:
    lacking = [name for name in PROMISED if not hasattr(cls, name)]
    return f"it does not say {', '.join(lacking)}" if lacking else None


CAUSES = Kind("cause", Cause, "steadytrain.diagnosis.causes", "steadytrain.causes", lacks=_lacks)


@dataclass(frozen=True)
class CauseExplanation:
    """What a cause's docstring and fields say."""

    name: str
    summary: str
    means: str
    causes: str
    next: str
    rivals: tuple[str, ...]
    confirmed_by: tuple[str, ...]
    spared: tuple[str, ...]
    interventions: tuple[Intervention, ...]
    grade: str
    source: str

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": "steadytrain.explanation/1",
            "kind": "cause",
            "name": self.name,
            "summary": self.summary,
            "means": self.means,
            "causes": self.causes,
            "next": self.next,
            "rivals": list(self.rivals),
            "confirmed_by": list(self.confirmed_by),
            "spared": list(self.spared),
            "interventions": [
                {"name": one.name, "rung": one.rung, "what": one.what, "trial": one.trial} for one in self.interventions
            ],
            "grade": self.grade,
            "source": self.source,
        }

    def text(self) -> str:
        """For a terminal."""
        parts = [_wrap(f"{self.name}: {self.summary}")]
        parts += [f"{title}:\n{indented(text)}" for title, text in self._sections() if text]
        return "\n\n".join(parts) + "\n"

    def _sections(self) -> list[tuple[str, str]]:
        mends = "\n".join(
            f"{one.rung}. {one.what}" + (f" (trial {one.trial})" if one.trial else "") for one in self.interventions
        )
        proof = f"{' or '.join(self.confirmed_by)} removes the symptom" + (
            f", and {', '.join(self.spared)} does not." if self.spared else "."
        )
        return [
            ("Means", self.means),
            ("Causes", self.causes),
            ("Next", self.next),
            ("Looks like", _wrap(", ".join(self.rivals))),
            ("Confirmed where", _wrap(proof)),
            ("Interventions", mends),
            ("Evidence", _wrap(f"Grade {self.grade}: {self.source}.")),
        ]


@cache
def causes() -> Mapping[str, Cause]:
    """Every usable cause by name: the shipped ones in order, then those of other packages."""
    return {**shipped(), **{kebab(cls): cls() for cls in CAUSES.outside()}}


def broken() -> tuple[Broken, ...]:
    """The causes of other packages that :func:`causes` left out."""
    return CAUSES.broken()


@cache
def shipped() -> Mapping[str, Cause]:
    """The causes of this package."""
    return {kebab(cls): cls() for cls in CAUSES.shipped()}


def explanation(name: str) -> CauseExplanation:
    """The explanation of the cause called ``name``.

    Raises:
        UsageError: there is none of that name; the message lists those that are near.
    """
    known = causes()
    if name in known:
        return explanation_of(name, known)
    hint = nearest(name, known, otherwise="`steadytrain explain` lists all")
    raise UsageError(f"no cause is called {name!r}; {hint}")


def rivals_of(name: str, known: Mapping[str, Cause]) -> tuple[str, ...]:
    """What looks like the cause of this name: the rivals that it declares, then those of ``known`` that declare it."""
    declared = known[name].rivals
    return (*declared, *(other for other, one in known.items() if name in one.rivals and other not in declared))


def explanation_of(name: str, known: Mapping[str, Cause]) -> CauseExplanation:
    """The explanation of one of the ``known`` causes."""
    cause = known[name]
    summary, sections = split_docstring(inspect.cleandoc(type(cause).__doc__ or ""))
    return CauseExplanation(
        name=name,
        summary=summary,
        means=sections.get("Means", ""),
        causes=sections.get("Causes", ""),
        next=sections.get("Next", ""),
        rivals=rivals_of(name, known),
        confirmed_by=cause.confirming,
        spared=cause.spared,
        interventions=cause.interventions,
        grade=cause.grade,
        source=cause.source,
    )


def catalog_page() -> str:
    """The page ``docs/causes.md``: every shipped cause, in Markdown."""
    entries = [explanation_of(name, shipped()) for name in shipped()]
    lines = [
        "<!-- Generated from the causes' docstrings. To write it anew:",
        "python -c 'from steadytrain.diagnosis.cause_catalog import catalog_page; print(catalog_page(), end=\"\")'"
        " > docs/causes.md",
        "-->",
        "",
        "# Causes",
        "",
        "What steadytrain knows of why a run goes wrong. `steadytrain diagnose` weighs them, tries and tells;",
        "`steadytrain explain NAME` prints one in a terminal. Rungs of interventions go from 1, fast, to 7, invasive.",
        "",
        "Grades of evidence: A seen by several groups, or provable; B one solid paper or report with interventions;",
        "C a single report; D folklore.",
        "",
        "| cause | |",
        "|---|---|",
        *(f"| [{entry.name}](#{entry.name}) | {entry.summary} |" for entry in entries),
    ]
    for entry in entries:
        lines += ["", f"## {entry.name}", "", entry.summary]
        for title, text in (("Means", entry.means), ("Causes", entry.causes), ("Next", entry.next)):
            lines += ["", f"### {title}", "", text]
        links = ", ".join(f"[{rival}](#{rival})" for rival in entry.rivals) or "nothing else"
        confirmed = " or ".join(f"`{trial}`" for trial in entry.confirmed_by)
        spared = f", and none of {', '.join(f'`{trial}`' for trial in entry.spared)} does" if entry.spared else ""
        lines += [
            "",
            "### Proof and rivals",
            "",
            f"Looks like {links}. Confirmed where {confirmed} removes it{spared}.",
        ]
        lines += ["", "### Interventions", "", "| rung | | trial |", "|---|---|---|"]
        lines += [
            f"| {one.rung} | {one.what} | {f'`{one.trial}`' if one.trial else ''} |" for one in entry.interventions
        ]
        lines += ["", f"Evidence {entry.grade}: {entry.source}."]
    return "\n".join(lines) + "\n"


def _wrap(text: str) -> str:
    return textwrap.fill(text, width=WIDTH, break_long_words=False, break_on_hyphens=False)
