"""Operations in their deterministic form."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class Deterministic(Trial):
    """Operations in their deterministic form.

    Changes:
        torch.use_deterministic_algorithms.

    Tells:
        A symptom that comes and goes with the order of sums.

    Beware:
        Slower; operations without such a form only warn.
    """

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        return planned(self, case, Change("deterministic"))
