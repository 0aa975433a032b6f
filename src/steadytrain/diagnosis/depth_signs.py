"""Signs of a signal or a gradient that fades or grows from layer to layer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from steadytrain.diagnosis.cause import STRONG, Sign
from steadytrain.diagnosis.signs import Signs, fact, measured

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


def deepened(case: Case) -> Signs:
    """A sign if the gradients of the first and last layer were alike at the run's first step and no longer are."""
    first, last = measured(case, "gradient_ratio"), measured(case, "gradient_ratio_last")
    if fact(case, "surveyed_first_step") != 1 or not ALIKE_MIN < first < 1 / ALIKE_MIN:
        return ()
    if measured(case, "activation_ratio") < SILENT_MAX:
        return ()  # nothing reached the last layer, so its gradient was as small as that of the first
    if APART_MAX < last < 1 / APART_MAX or math.isnan(last):
        return ()
    what = (
        f"gradients of the first layer were {first:.2g} times those of the last at the first step, and are {last:.2g}"
    )
    return (Sign(what, STRONG, "fact gradient_ratio_last", {"first": first, "last": last}),)


ALIKE_MIN, APART_MAX = 1e-2, 1e-3
"""Gradient ratio of the first layer to the last: after initialisation, and during training."""


SILENT_MAX = 1e-4
"""RMS of the last layer's output over that of the first's, at the first step. Less is no signal that can be learned."""
