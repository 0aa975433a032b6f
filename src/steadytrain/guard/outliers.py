"""Whether a value stands far above those of the last steps: the rule at the gate of policies that skip such updates."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from steadytrain.capture.step.gate import Measurement
from steadytrain.capture.step.optimizer_streams import Stream

WINDOW = 128
VALUES_MIN = 16
DEVIATIONS = 6.0
"""The threshold and the window of OLMo's skip-step optimizers: mean plus six standard deviations of 128 steps."""

MAD_TO_DEVIATION = 1.4826
RATIO_MIN = 1.5
"""A value this close to the median is none, however quiet the steps before were."""


def outlier(values: NDArray[np.float64], value: float) -> bool:
    """Whether ``value`` lies more than ``DEVIATIONS`` robust deviations above the median of the last ``values``.

    ``values`` has shape ``(steps,)``, oldest first. With fewer than ``VALUES_MIN`` there is no answer but no.
    """
    recent = np.asarray(values, np.float64)[-WINDOW:]
    recent = recent[np.isfinite(recent)]
    if len(recent) < VALUES_MIN:
        return False
    middle = float(np.median(recent))
    spread = MAD_TO_DEVIATION * float(np.median(np.abs(recent - middle)))
    return value > middle + max(DEVIATIONS * spread, (RATIO_MIN - 1) * abs(middle))


def is_outlier(symptom: str, stream: Stream, measured: Measurement) -> bool:
    """Whether the loss (of ``loss-spike``) or the gradient norm of the step at the gate is an outlier."""
    signal = "loss" if symptom == "loss-spike" else "gradient_norm"
    value = measured.record.scalars.get(signal)
    return value is not None and outlier(stream.history.window().applied(signal).values, value)
