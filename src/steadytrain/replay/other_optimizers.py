"""The optimizers of a launched script that take turns with the one whose steps are replayed."""

from __future__ import annotations

from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.replay.recorded_steps import OtherUpdate, RecordedStep


class OtherOptimizers:
    """Finds the others at their gates, and counts their updates within a step.

    Args:
        own: the name of the optimizer whose steps are replayed.
    """

    def __init__(self, own: str) -> None:
        self.own = own
        self.streams: list[Stream] = []
        self.updates = 0
        """Updates so far in this step."""

        self.at_gate = False
        """Whether the last gate was that of another optimizer."""

    def meet(self, stream: Stream) -> bool:
        """A gate of ``stream``. Returns whether it is another optimizer."""
        self.at_gate = stream.name != self.own
        if self.at_gate and all(stream is not one for one in self.streams):
            self.streams.append(stream)
        return self.at_gate

    def step_begins(self) -> None:
        self.updates = 0

    def next_update(self, step: RecordedStep | None, stream: Stream) -> OtherUpdate | None:
        """The recorded update at this gate of ``stream``; None if the step has another one there, or none."""
        recorded = step.others if step is not None else []
        number, self.updates = self.updates, self.updates + 1
        found = recorded[number] if number < len(recorded) else None
        return found if found is not None and found.stream == stream.name else None

    def refused(self, step: RecordedStep | None) -> bool:
        """Whether the update at this gate was refused when it was recorded."""
        made = step.others[self.updates - 1 : self.updates] if step is not None else []
        return any(one.refused for one in made)
