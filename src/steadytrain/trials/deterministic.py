"""Operations in their deterministic form."""

from __future__ import annotations

from typing import final

from steadytrain.trials.case import Case
from steadytrain.trials.contract import Change, NotApplicable, Spec, Trial
from steadytrain.trials.planning import planned


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
