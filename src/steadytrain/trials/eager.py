"""Without compilation."""

from __future__ import annotations

from typing import final

from steadytrain.trials.case import Case
from steadytrain.trials.contract import Change, NotApplicable, Spec, Trial
from steadytrain.trials.planning import planned


@final
class Eager(Trial):
    """Without compilation.

    Changes:
        What torch.compile compiled runs as plain Python.

    Tells:
        Compiled code that computes something else.

    Beware:
        Other rounding everywhere, as fused operations come apart.
    """

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        return planned(self, case, Change("eager"))
