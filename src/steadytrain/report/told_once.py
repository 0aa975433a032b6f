"""Symptoms without those that repeat a longer one; the longer one names them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from steadytrain.core.model import Symptom
from steadytrain.grouping.parts import Seen, parts
from steadytrain.report.wording import step_range


def told_once(seen: Sequence[Seen]) -> list[Seen]:
    """``seen`` without parts; the message of the whole names them, so that none is lost."""
    whole_of = parts(seen)
    parts_of: dict[int, list[Symptom]] = {}
    for at, place in whole_of.items():
        parts_of.setdefault(place, []).append(seen[at][0])
    return [
        (replace(one, message=f"{one.message}; {_named(parts_of[at])}") if at in parts_of else one, origin)
        for at, (one, origin) in enumerate(seen)
        if at not in whole_of
    ]


def _named(parts: Sequence[Symptom]) -> str:
    first, more = parts[0], f" and {len(parts) - 1} more" if len(parts) > 1 else ""
    return f"the {first.name} at {step_range(first)}{more} {'are' if more else 'is'} part of it"
