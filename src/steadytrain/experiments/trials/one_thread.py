"""Operations on one thread."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class OneThread(Trial):
    """Operations on one thread.

    Changes:
        torch runs on one thread of the CPU.

    Tells:
        Sums whose order hangs on threads.

    Beware:
        Slower.
    """

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        return planned(self, case, Change("one-thread"))
