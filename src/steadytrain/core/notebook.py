"""HTML of a value for notebooks.

What a run or a diagnosis shows is decided where pages are made, a room far above these values. So the drawing is found
by the name of its module, as plug-ins are. If it fails, a small escaped table takes its place: a notebook that prints
a value never gets an error of ours.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

TEXT_MAX = 300
DRAWN_BY = "steadytrain.report.notebook_card"


@dataclass(frozen=True)
class Drawing:
    """Something drawn for a notebook; elsewhere one line says what it is."""

    title: str
    html: str

    def __repr__(self) -> str:
        return f"<{self.title}; a notebook draws it>"

    def _repr_html_(self) -> str:
        return self.html


def as_card(value: object, title: str, facts: Mapping[str, object]) -> str:
    """``value`` as the first screen of its page, or a table of ``facts`` if that fails (a damaged run, a full disk)."""
    try:
        html: str = drawn_by("card")(value)
    except Exception:
        return as_html(title, facts)
    return html


def curves_of(run: object, stream: str) -> Drawing:
    """The curves of a stream of a run."""
    drawing: Drawing = drawn_by("curves_of")(run, stream)
    return drawing


def drawn_by(name: str) -> Any:
    """A function of the module that draws."""
    return getattr(importlib.import_module(DRAWN_BY), name)


def as_html(title: str, facts: Mapping[str, object]) -> str:
    """``title`` over a table with one row per fact. Skips facts that are None or "", and truncates long ones."""
    shown = [(name, str(value)) for name, value in facts.items() if value is not None and str(value)]
    rows = (f'<tr><th style="text-align:left">{escape(name)}</th>{_cell(value)}</tr>' for name, value in shown)
    return f"<div><strong>{escape(title)}</strong><table>{''.join(rows)}</table></div>"


def _cell(value: str) -> str:
    text = value if len(value) <= TEXT_MAX else f"{value[: TEXT_MAX - 1]}…"
    return f'<td style="text-align:left">{escape(text)}</td>'
