"""Replaces the arguments of a model call with the recorded ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from steadytrain.capture.step.input_recorder import MicroBatch
from steadytrain.capture.step.optimizer_streams import StepInProgress
from steadytrain.replay.batch_feeding import Merging
from steadytrain.replay.recorded_steps import RecordedStep

OTHER_INPUTS = (
    "the script made other inputs than those recorded for a step, and computed its loss from them; its own "
    "batch was used there"
)
OTHER_CALLS = "the script calls its model differently than in the recorded step; its own batch was used there"


def fed_arguments(
    step: RecordedStep,
    number: int,
    call: MicroBatch,
    args: Any,
    kwargs: Any,
    *,
    own: bool,
    loss_inside: bool,
    note: Callable[[str], None],
) -> tuple[Any, Any] | None:
    """Restores the random state of call ``number`` and returns its arguments; None if the script's own must be used.

    Args:
        own: the trial takes the script's own batches.
        loss_inside: as for ``recorded_arguments``.
        note: as for ``recorded_arguments``.
    """
    if not is_recorded_call(step, number, call):
        note(OTHER_CALLS)
        return None
    state = step.random(number, "random")
    if state is not None:
        state.restore()
    if own or step.calls[number]["changed_after_use"]:
        return None
    return recorded_arguments(step, number, args, kwargs, loss_inside=loss_inside, note=note)


def is_recorded_call(step: RecordedStep, number: int, call: MicroBatch) -> bool:
    """Whether call ``number`` of the step called a module of the same class."""
    return number < len(step.calls) and bool(step.calls[number]["module"] == type(call.module).__qualname__)


def recorded_arguments(
    step: RecordedStep, number: int, args: Any, kwargs: Any, *, loss_inside: bool, note: Callable[[str], None]
) -> tuple[Any, Any] | None:
    """The recorded arguments of call ``number``; None if the script's own must be used.

    Args:
        loss_inside: the model itself returns the loss. Otherwise the script's targets belong to its own inputs, not to
            those of the tape.
        note: gets a text about what could not be fed.
    """
    inputs = step.value(step.calls[number]["inputs"])
    merged = Merging()
    given = merged.put(inputs["args"], tuple(args)), merged.put(inputs["kwargs"], dict(kwargs))
    for name in merged.not_kept:
        note(f"inputs of type {name} are not on the tape; the script's own are used")
    if not merged.same and not loss_inside:
        note(OTHER_INPUTS)
        return None
    return given


def loss_is_of_model(seen: StepInProgress) -> bool:
    """Whether the model itself returned every loss, so that its arguments determine the loss."""
    outputs = {node for call in seen.micro_batches for node in call.scalar_outputs}
    return bool(seen.losses) and all(outputs.intersection(term.nodes) for term in seen.losses)
