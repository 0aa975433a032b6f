"""bfloat16 in the place of float16."""

from __future__ import annotations

from typing import final

from steadytrain.trials.case import Case
from steadytrain.trials.contract import Change, NotApplicable, Spec, Trial
from steadytrain.trials.planning import planned


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
