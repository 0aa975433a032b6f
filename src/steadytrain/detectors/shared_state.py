"""Kept observations that are one object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.detectors import SourceRule


@final
@dataclass(frozen=True)
class SharedState(SourceRule):
    """An environment returns its own state, and all observations that are kept are one object.

    Means:
        The source of an environment changes its state in place and returns it without a copy; the script keeps what
        it gets. All entries of the buffer that belong to one episode then show its last state: state and next state
        are equal, and rewards belong to nothing that was seen.

    Causes:
        - `return self.state` after `self.state[0] += move`
        - `buffer.append((state, action, reward, next_state))` with arrays that the environment goes on using

    Next:
        1. Return a copy: `return self.state.copy()`.
        2. Print a state and a next state of one entry: they must differ.
    """

    kind: ClassVar[str] = "shared-state"
    says: ClassVar[str] = (
        "returns the state itself, which the environment goes on changing: all kept observations change with it"
    )
