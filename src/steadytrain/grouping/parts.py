"""Which symptoms repeat a longer one: a spike that stays is the beginning of a divergence."""

from __future__ import annotations

from collections.abc import Sequence

from steadytrain.core.model import SEVERITIES, Symptom
from steadytrain.grouping.catalog import declared

COVERED_SHARE_MIN = 0.5
"""Of the steps of a part, those that the whole must have too. Chosen: less than half is another event."""

Seen = tuple[Symptom, str]
"""A symptom and its origin, the rank or the stream that saw it."""


def parts(seen: Sequence[Seen]) -> dict[int, int]:
    """For each symptom that is a part of another one of ``seen``, by its place: the place of the whole."""
    found: dict[int, int] = {}
    wanted = {declared(one.name).part_of for one, _ in seen}
    wholes = [(place, whole, origin) for place, (whole, origin) in enumerate(seen) if whole.name in wanted]
    for at, (one, origin) in enumerate(seen):
        for place, whole, other in wholes:
            same = (whole.name, other, whole.stream) == (declared(one.name).part_of, origin, one.stream)
            if same and _covers(whole, one):
                found[at] = place
                break
    return found


def wholes(symptoms: Sequence[Symptom]) -> list[Symptom]:
    """``symptoms`` without those that are a part of another one."""
    dropped = parts([(symptom, "") for symptom in symptoms])
    return [symptom for at, symptom in enumerate(symptoms) if at not in dropped]


def _covers(whole: Symptom, part: Symptom) -> bool:
    shared = min(whole.last_step, part.last_step) - max(whole.first_step, part.first_step) + 1
    graver = SEVERITIES.index(part.severity) > SEVERITIES.index(whole.severity)
    return not graver and shared >= COVERED_SHARE_MIN * (part.last_step - part.first_step + 1)
