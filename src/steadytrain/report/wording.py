"""Format words and numbers for readers, and make text from disk safe to show.

A run may come from a stranger and a terminal obeys escape sequences, so control characters are made visible.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from steadytrain.core.model import Symptom

TEXT_LENGTH_MAX = 4_000
ENTRIES_MAX = 300


@dataclass(frozen=True)
class Fact:
    """A label and its value, both ready to show."""

    label: str
    value: str


def clean(value: object, *, length_max: int = TEXT_LENGTH_MAX) -> str:
    """``value`` as one safe line: control and bidirectional characters are made visible, and the length is bounded."""
    return clean_block(value, length_max=length_max).replace("\n", " ⏎ ")


def clean_block(value: object, *, length_max: int = TEXT_LENGTH_MAX) -> str:
    """Like :func:`clean`, but keeps line breaks."""
    text = str(value)
    if len(text) > length_max:
        text = f"{text[:length_max]}… ({len(text)} characters)"
    if text.isprintable():  # no control character, no mark that reorders text, no line end
        return text
    return _UNSAFE.sub(lambda match: _visible(match[0]), text.expandtabs(4).replace("\r\n", "\n"))


def number(value: float) -> str:
    """``value`` with four significant digits, or ``nan`` or ``inf``."""
    return f"{value:.4g}"


def count(value: int) -> str:
    return f"{value:,}"


def step_range(symptom: Symptom) -> str:
    if symptom.first_step == symptom.last_step:
        return f"step {count(symptom.first_step)}"
    return f"steps {count(symptom.first_step)} to {count(symptom.last_step)}"


def enumerated(names: Sequence[str], shown_max: int) -> str:
    more = f" and {len(names) - shown_max} more" if len(names) > shown_max else ""
    return ", ".join(names[:shown_max]) + more


def titled(name: str) -> str:
    words = clean(name).replace("_", " ")
    return words[:1].upper() + words[1:]


def facts_of(*pairs: tuple[str, Any]) -> tuple[Fact, ...]:
    return tuple(Fact(label, clean(value)) for label, value in pairs if value not in (None, "", [], {}))


def sentences(value: Any) -> tuple[str, ...]:
    return tuple(clean(entry) for entry in value[:ENTRIES_MAX]) if isinstance(value, list) else ()


# Control characters except the line break, surrogates, and marks that reorder or hide text.
_UNSAFE = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")


def _visible(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
