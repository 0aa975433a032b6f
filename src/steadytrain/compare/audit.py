"""The audit of one checkpoint as a value, and as the document ``steadytrain.audit/1``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from steadytrain.compare.checkpoint_contents import PARTS, CheckpointContents
from steadytrain.compare.consistency import contradictions
from steadytrain.compare.differences import Compared, Part, compare
from steadytrain.compare.tensor_differences import Difference

SCHEMA = "steadytrain.audit/1"


@dataclass(frozen=True)
class Audit:
    """The result of an audit. ``against`` is None if the checkpoint was not compared with anything."""

    found: CheckpointContents
    against: CheckpointContents | None
    parts: tuple[Part, ...]
    differences: tuple[Difference, ...]
    notes: tuple[str, ...]
    loads: tuple[Mapping[str, Any], ...] = ()

    @property
    def clean(self) -> bool:
        return not self.differences

    @property
    def compared(self) -> bool:
        """Whether anything was compared, or nothing was asked for."""
        return self.against is None or any(part.expected is not None for part in self.parts)

    def to_json(self) -> dict[str, Any]:
        against = self.against
        return {
            "schema": SCHEMA,
            "checkpoint": self.found.source,
            "format": self.found.kind,
            "step": self.found.step,
            "against": None if against is None else against.source,
            "against_format": None if against is None else against.kind,
            "against_step": None if against is None else against.step,
            "clean": self.clean,
            "compared": self.compared,
            "parts": [part.to_json() for part in self.parts],
            "differences": [difference.to_json() for difference in self.differences],
            "loads": [dict(load) for load in self.loads],
            "notes": list(self.notes),
        }


def audit(
    found: CheckpointContents,
    expected: CheckpointContents | None = None,
    *,
    others: Sequence[CheckpointContents] = (),
    notes: Sequence[str] = (),
    loads: Sequence[Mapping[str, Any]] = (),
) -> Audit:
    """Audit ``found`` alone, and against ``expected`` if given. Reports each fault once."""
    alone = contradictions(found)
    if expected is None:
        parts = tuple(Part(part, _size(found, part), None, 0) for part in PARTS)
        compared = Compared(parts, (), ())
    else:
        compared = compare(found, expected, others=others)
    told = {(difference.part, difference.name) for difference in compared.differences}
    # A contradiction that the run shows, too (a parameter that joined later), is not a fault of the checkpoint.
    excused = {part.name for part in compared.parts if part.expected is not None and part.held is not None}
    differences = [
        *compared.differences,
        *(
            difference
            for difference in alone
            if (difference.part, difference.name) not in told
            and (difference.part not in excused or difference.name == "all" or difference.kind == "stale")
        ),
    ]
    order = list(PARTS)
    differences.sort(key=lambda difference: order.index(difference.part))
    return Audit(
        found=found,
        against=expected,
        parts=compared.parts,
        differences=tuple(differences),
        notes=(*found.notes, *notes, *compared.notes),
        loads=tuple(loads),
    )


def _size(held: CheckpointContents, part: str) -> int | None:
    value = getattr(held, part)
    return None if value is None else len(value)
