"""The page of a result that is not of a run: of preflight, check-data, audit and compare, in the same shell as a run's.

A page opens offline, loads nothing and runs no script.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from steadytrain.core.own_command import pasteable
from steadytrain.report.first_screen import SIGNS, StatusWord, Tone
from steadytrain.report.html import redacted_cell, style
from steadytrain.report.wording import Fact, clean

Severity = Literal["critical", "warning", "note", "silent"]


@dataclass(frozen=True)
class Cell:
    """A cell of a table. A tone has a sign beside its colour."""

    text: str
    tone: Tone | None = None
    mono: bool = False

    @property
    def sign(self) -> str:
        return "" if self.tone is None else SIGNS[self.tone]


@dataclass(frozen=True)
class Section:
    """A part of a page: sentences, facts, a table. ``drawing`` is HTML of ours, in which all text was escaped."""

    title: str
    lines: tuple[str, ...] = ()
    facts: tuple[Fact, ...] = ()
    head: tuple[str, ...] = ()
    rows: tuple[tuple[Cell, ...], ...] = ()
    drawing: Markup = Markup()  # noqa: RUF009 - a text, which cannot change


@dataclass(frozen=True)
class ResultPage:
    """``cards`` stand beside each other on the first screen, then come the open sections, then the folded ones.
    ``command`` is the next one, "" for none."""

    kind: str
    severity: Severity
    status: tuple[StatusWord, ...]
    headline: str
    sentences: tuple[str, ...] = ()
    cards: tuple[Section, ...] = ()
    sections: tuple[Section, ...] = ()
    folded: tuple[Section, ...] = ()
    command: str = ""


def render(shown: ResultPage, *, version: str) -> str:
    """The HTML of ``shown``. ``version`` is the version of steadytrain that writes it."""
    environment = Environment(
        autoescape=True, finalize=redacted_cell, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string(files("steadytrain.report").joinpath("result.html.j2").read_text("utf-8"))
    text: str = template.render(page=shown, here=pasteable, style=style(), version=version)
    return text


def counted(words: Sequence[tuple[int, str, Tone]]) -> tuple[StatusWord, ...]:
    """``3 failed``, ``12 passed``: what there is none of is left out."""
    return tuple(StatusWord(f"{number:,} {word}", tone) for number, word, tone in words if number)


def facts(*pairs: tuple[str, object]) -> tuple[Fact, ...]:
    """Those that have a value."""
    return tuple(Fact(label, clean(value)) for label, value in pairs if value not in (None, "", ()))
