"""Signs from how far an unchanged replay is that of the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steadytrain.diagnosis.signs import fact

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


def differs_at_onset(case: Case) -> bool:
    """Whether the surveyed replay first differs from the run where the symptom began, or right before."""
    first = fact(case, "first_difference")
    return isinstance(first, dict) and first.get("step") in (case.onset - 1, case.onset)
