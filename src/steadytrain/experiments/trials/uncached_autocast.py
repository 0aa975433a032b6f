"""Autocast without its cache of weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.judging import judge
from steadytrain.experiments.planning import from_the_beginning
from steadytrain.experiments.specs import Change, NotApplicable, Outcome, Spec, Verdict, not_against
from steadytrain.experiments.trial import Trial


@final
class UncachedAutocast(Trial):
    """Autocast without its cache of weights.

    Changes:
        Every autocast context casts a weight each time that it is used. The script runs from its own beginning.

    Tells:
        Whether copies of weights from before an update do the harm.

    Beware:
        Casts of one step are equal with and without the cache, so a run without stale copies stays as it is. A loss
        that falls as little as it did in its first steps goes against nothing.
    """

    axis = "precision"

    def judge(self, case: Case, controls: Sequence[Outcome], outcomes: Sequence[Outcome]) -> Verdict:
        """A loss that falls as little as it did in its first steps shows nothing."""
        return not_against(judge(self.name, case, controls, outcomes))

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        if not any(one.name == "stale-casts" for one in case.symptoms):
            return NotApplicable("no copy of a weight was older than the weight")
        return from_the_beginning(self, case, Change("uncached-autocast"))
