"""Operations keep away from their singular points."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class SafeOperation(Trial):
    """Operations keep away from their singular points.

    Changes:
        log, sqrt, division, acos and their kin get operands at least 1e-6 away from where they are not finite; exp does
        not overflow.

    Tells:
        An operation at its singular point: log(0), sqrt(0), a division by zero.

    Beware:
        Slower: every call is looked at. A sum that is empty by mistake stays a mistake.
    """

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        return planned(self, case, Change("safe-operation"))
