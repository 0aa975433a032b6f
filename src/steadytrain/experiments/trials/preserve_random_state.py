"""Activation checkpoints that restore the random state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.judging import judge
from steadytrain.experiments.planning import from_the_beginning
from steadytrain.experiments.specs import Change, NotApplicable, Outcome, Spec, Verdict, not_against
from steadytrain.experiments.trial import Trial


@final
class PreserveRandomState(Trial):
    """Activation checkpoints that restore the random state.

    Changes:
        Every `torch.utils.checkpoint` keeps the random state of its forward and restores it for the one that the
        backward runs. The script runs from its own beginning.

    Tells:
        Whether a recomputed forward with other dropout masks or samples does the harm.

    Beware:
        The random numbers of later steps are others, too: those that a recomputed forward drew are not drawn. A loss of
        few steps may be the same with either gradient, so it goes against nothing.
    """

    axis = "model"

    def judge(self, case: Case, controls: Sequence[Outcome], outcomes: Sequence[Outcome]) -> Verdict:
        """A loss that falls as it did shows nothing: these gradients are wrong by the noise of each step."""
        return not_against(judge(self.name, case, controls, outcomes))

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        if not any(one.name == "unlike-recomputation" for one in case.symptoms):
            return NotApplicable("no backward draws random numbers")
        return from_the_beginning(self, case, Change("preserve-random-state"))
