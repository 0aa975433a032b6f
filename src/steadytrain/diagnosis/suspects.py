"""All causes as suspects in a case."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steadytrain.diagnosis.cause_catalog import causes, shipped
from steadytrain.diagnosis.weighing import Suspect

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


def suspects_of(case: Case) -> tuple[Suspect, ...]:
    """All causes with their signs in the case. A cause of another package that fails is left out."""
    found = []
    for name, cause in causes().items():
        try:
            found.append(Suspect(name, cause, cause.signature(case)))
        except Exception:
            if name in shipped():
                raise
    return tuple(found)
