"""Queries and keys made smaller where their products are too large."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class QkClip(Trial):
    """Queries and keys made smaller where their products are too large.

    Changes:
        Scores of a head whose largest is above 30 are scaled down together so that it is 30, the factor taken as a
        constant: what clipping of the weights of queries and keys would give in this step.

    Tells:
        Attention whose scores grow until it looks at one place only. Unlike a cap it leaves the order and the ratios
        of the scores as they are.

    Beware:
        The weights are not clipped, so the scores of the script itself go on growing.
    """

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        return planned(self, case, Change("qk-clip", {"limit": LIMIT}))


LIMIT = 30.0
"""Above what attention in sound runs was seen to have (the cause is spoken against below it), below the 100 of
2507.20534, so that a growth is stopped before it has done its harm."""
