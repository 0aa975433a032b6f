"""Values are bootstrapped past the end of an episode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.detectors import SourceRule


@final
@dataclass(frozen=True)
class UnusedEpisodeEnd(SourceRule):
    """Values are bootstrapped past the end of an episode.

    Means:
        The source of the script adds a discounted value of the next state to the reward, and knows where an episode
        ended (a variable such as `done`), but never reads it there. The end of an episode then costs nothing, and
        values leak from the next episode into the one before.

    Causes:
        - `reward + gamma * next_value` without `* (1 - done)`
        - an advantage or a return that is carried over from one episode to the one before

    Next:
        1. Multiply the value of the next state, and what is carried over, by `1 - done`.
        2. Leave out only ends of the task: at a time limit the value of the next state is right.
    """

    kind: ClassVar[str] = "unused-end"
    says: ClassVar[str] = "bootstraps from the next state also where the episode ended: `done` is known and not used"
