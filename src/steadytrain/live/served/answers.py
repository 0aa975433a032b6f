"""What a request gets: status, type, headers, body. Every answer carries a policy that forbids other hosts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any

from steadytrain.storage.documents import as_json

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
OWN_POLICY = "frame-ancestors 'none'"
"""For pages that state their own policy inside, with the hashes of their scripts."""


@dataclass(frozen=True)
class Answer:
    body: bytes
    kind: str
    status: int = 200
    policy: str = POLICY
    headers: Mapping[str, str] = field(default_factory=dict)


def document(value: Any) -> Answer:
    return Answer(as_json(value, allow_nan=False).encode(), "application/json")


def html(text: str, *, status: int = 200, policy: str = POLICY) -> Answer:
    return Answer(text.encode("utf-8", "replace"), "text/html; charset=utf-8", status, policy)


def refused(status: int, why: str) -> Answer:
    return html(
        shell("Not shown", f"<h1>Not shown</h1><p>{escape(why)}</p><p><a href='/'>all runs</a></p>"), status=status
    )


def moved(to: str, headers: Mapping[str, str]) -> Answer:
    return Answer(b"", "text/plain", 303, headers={"Location": to, **headers})


def shell(title: str, main: str, *, script: str = "", data: Mapping[str, str] | None = None) -> str:
    """A page: ``main`` is HTML of ours, in which all text was escaped."""
    attributes = "".join(f' data-{name}="{escape(value)}"' for name, value in (data or {}).items())
    loaded = f'<script src="/{script}" defer></script>' if script else ""
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><title>{escape(title)}</title>'
        f'<link rel="icon" href="data:,"><link rel="stylesheet" href="/ui.css">{loaded}</head>'
        f"<body{attributes}><nav><a href='/'>Runs</a> <a href='/explain'>Explanations</a></nav>"
        f"<main>{main}</main></body></html>"
    )
