"""Positions and frequencies in float32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.skill_source import ends_lower
from steadytrain.experiments.specs import Change, NotApplicable, Outcome, Spec, Verdict
from steadytrain.experiments.trial import Trial


@final
class Float32Positions(Trial):
    """Positions and frequencies in float32.

    Changes:
        The script runs with ``torch.arange`` in float32 where it asks for 16 bits, and each buffer of positions or
        frequencies keeps its registered values. Other modules get their inputs in their own dtype.

    Tells:
        Positions that are equal in 16 bits; weights and activations stay unchanged.

    Beware:
        A separate launch. Weights trained with the wrong table get another one, so the loss may rise before it falls.
    """

    axis = "precision"

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        if not case.facts.get("positions_low_precision") and not case.facts.get("positions_equal"):
            return NotApplicable("no table of positions in 16 bits was seen, or no survey ran")
        return planned(self, case, Change("float32-positions"))

    def judge(self, case: Case, controls: Sequence[Outcome], outcomes: Sequence[Outcome]) -> Verdict:
        """Judge a run that does not improve by its final probe loss: the right table may help from the first step
        on.
        """
        if case.aim != "progress":
            return super().judge(case, controls, outcomes)
        return ends_lower(self.name, controls, outcomes)
