"""Operations on one thread."""

from __future__ import annotations

from typing import final

from steadytrain.trials.case import Case
from steadytrain.trials.contract import Change, NotApplicable, Spec, Trial
from steadytrain.trials.planning import planned


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
