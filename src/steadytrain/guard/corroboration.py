"""Whether a symptom means that the weights have left their course, by the history of the loss and of the gradients."""

from __future__ import annotations

from collections.abc import Sequence

from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.core.model import Symptom
from steadytrain.statistics.medians import median

OF_LOSS = ("divergence", "loss-spike", "lost-progress")
NORM_RATIO, LEVEL_STEPS, LEVEL_STEPS_MIN = 8.0, 256, 8
ONSET_STEPS = 64
"""A symptom of the loss alone counts if a gradient norm at its onset was so many times the median before."""

NEAR_STEPS = 8
"""A symptom that was seen within so many steps before a value that is not finite belongs to it."""

DATA_SHARE = 0.5
DATA_CHANGED = (
    "the state from before the trouble has the same loss on the data that follow: the data changed, and from here on "
    "only values that are not finite are acted on"
)


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


def onset_of(stream: Stream, step: int, symptoms: Sequence[Symptom], *, since: float) -> tuple[int, bool]:
    """The first step of the trouble that ``step`` belongs to, and whether an applied update is part of it: then the
    weights have left their course already, and leaving out a batch does not help. Symptoms from before ``since`` do
    not count.
    """
    window = stream.history.window()
    refused = window.steps[window.refused].tolist()
    first = step
    while refused and refused[-1] == first - 1:
        first = refused.pop()
    open_since = [
        one.first_step
        for one in symptoms
        if one.stream == stream.name and one.last_step >= first - NEAR_STEPS and since < one.first_step < first
    ]
    return min([first, *open_since]), bool(open_since)


def data_changed(stream: Stream, levels: tuple[float, float], rolled_back_at: float) -> bool:
    """Whether the state that the run rolled back to has the loss of the trouble on the data that follow.

    ``levels`` are those of :func:`levels_at`.
    """
    losses = stream.history.window().applied("loss")
    now = losses.values[losses.steps > rolled_back_at]
    before, trouble = levels
    return len(now) > 0 and median(now) > before + DATA_SHARE * (trouble - before)
