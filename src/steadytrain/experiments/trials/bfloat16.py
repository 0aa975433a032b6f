"""bfloat16 in the place of float16."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class Bfloat16(Trial):
    """bfloat16 in the place of float16.

    Changes:
        Autocast, weights, moments and inputs in float16 become bfloat16.

    Tells:
        The range of float16: overflow and underflow.

    Beware:
        bfloat16 has three bits fewer, so what rounding does gets worse.
    """

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        return planned(self, case, Change("bfloat16-for-float16"))
