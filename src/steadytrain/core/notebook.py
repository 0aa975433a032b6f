"""HTML of a value for notebooks: a heading over a small table, escaped, without styles or scripts."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

TEXT_MAX = 300


def as_html(title: str, facts: Mapping[str, object]) -> str:
    """``title`` over a table with one row per fact. Skips facts that are None or "", and truncates long ones."""
    shown = [(name, str(value)) for name, value in facts.items() if value is not None and str(value)]
    rows = (f'<tr><th style="text-align:left">{escape(name)}</th>{_cell(value)}</tr>' for name, value in shown)
    return f"<div><strong>{escape(title)}</strong><table>{''.join(rows)}</table></div>"


def _cell(value: str) -> str:
    text = value if len(value) <= TEXT_MAX else f"{value[: TEXT_MAX - 1]}…"
    return f'<td style="text-align:left">{escape(text)}</td>'
