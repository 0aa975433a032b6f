"""A roll-back on trial: the losses after it show whether the state was at fault or the data."""

from __future__ import annotations

from dataclasses import dataclass

from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.guard.corroboration import DATA_CHANGED, data_changed
from steadytrain.guard.extremes import HELD_BACK
from steadytrain.guard.policy import EXTREME

STRETCH = "passing-data"
"""What the trouble is called that a stretch of other data leaves."""

GOES_ON = "the state from before the stretch has no usual loss on the data that follow: they are not what they were"


@dataclass(frozen=True)
class Trial:
    """Of a roll-back for trouble ``of`` (``EXTREME``, ``STRETCH``, or another symptom).

    Args:
        levels: of the loss before the trouble and in it.
    """

    of: str
    levels: tuple[float, float]

    def failed(self, stream: Stream, rolled_back_at: float) -> bool:
        """Whether the state that the run rolled back to has the trouble too."""
        return data_changed(stream, self.levels, rolled_back_at)

    @property
    def why_failed(self) -> str:
        """Why the roll-back is undone."""
        return {EXTREME: HELD_BACK, STRETCH: GOES_ON}.get(self.of, DATA_CHANGED)
