"""The weights moved at random by as much as one update moves them."""

from __future__ import annotations

import math
from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial

SHARE_USUAL, SHARE_MAX = 1e-3, 0.03
"""Size of the usual update as a share of the weights, if it is unknown, and the largest that is taken over: a run whose
updates are larger would be destroyed by a random one."""


@final
class RandomStep(Trial):
    """The weights moved at random by as much as one update moves them.

    Changes:
        Each weight tensor gets a random vector of the size of the usual update once, at the snapshot; all else stays.

    Tells:
        Whether the symptom goes away by any change of that size: then no change that removes it proves a cause. The
        placebo of trials that have none of their own.

    Beware:
        The loss rises a little at first.
    """

    removes = "transient"
    either = "moments half operation"
    alike = "control"

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        return planned(self, case, Change("random-step", {"share": _share(case), "seed": 1}))


def _share(case: Case) -> float:
    """The size of the usual update as a share of the weights, two digits."""
    known = case.facts.get("update_ratio_median")
    share = float(known) if isinstance(known, (int, float)) and math.isfinite(known) and known > 0 else SHARE_USUAL
    return float(f"{min(share, SHARE_MAX):.1e}")
