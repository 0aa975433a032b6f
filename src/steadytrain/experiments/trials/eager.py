"""Without compilation."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


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
