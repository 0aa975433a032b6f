"""Whether a symptom means that the weights have left their course, by the history of the loss and of the gradients."""

from __future__ import annotations

from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.core.model import Symptom
from steadytrain.statistics.medians import median

OF_LOSS = ("divergence", "loss-spike", "lost-progress")
NORM_RATIO, LEVEL_STEPS, LEVEL_STEPS_MIN = 8.0, 256, 8
ONSET_STEPS = 64
"""A symptom of the loss alone counts if a gradient norm at its onset was so many times the median before."""


def left_its_course(symptom: Symptom, stream: Stream) -> bool:
    """Whether the gradients say so too: a loss alone also rises where the task becomes harder."""
    if symptom.name.startswith("nonfinite"):
        return True
    norms = stream.history.window().applied("gradient_norm")
    before = norms.values[norms.steps < symptom.first_step][-LEVEL_STEPS:]
    since = norms.between(symptom.first_step, symptom.first_step + ONSET_STEPS).values
    if len(before) < LEVEL_STEPS_MIN or not len(since):
        return True
    usual = median(before)
    return usual > 0 and (symptom.name not in OF_LOSS or bool(since.max() > NORM_RATIO * usual))


def levels_at(stream: Stream, onset: int) -> tuple[float, float] | None:
    """The level of the loss before the onset and since then; None if one of them is not known."""
    losses = stream.history.window().applied("loss")
    before, since = losses.values[losses.steps < onset][-LEVEL_STEPS:], losses.values[losses.steps >= onset]
    return (median(before), median(since)) if len(before) and len(since) else None
