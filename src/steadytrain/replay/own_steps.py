"""The number of steps that a launched script computes itself before the recorded ones are fed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from steadytrain.capture.step.input_recorder import MicroBatch

SHORT_LEAD = (
    "the script ran only its first step before the replay: code that depends on its own step counter may act "
    "differently (--lead-s)"
)
BY_HAND = (
    "the script makes its updates itself: a momentum or a rate that it keeps in its own variables is in no snapshot"
)


@dataclass(frozen=True)
class OwnSteps:
    """``wanted`` is at least one. ``skips`` says whether the script leaves out steps before the recorded ones."""

    wanted: int
    skips: bool


def own_steps(before: int, *, step_s: float, lead_s: float, least: int = 1) -> OwnSteps:
    """All ``before`` if they fit into ``lead_s`` seconds at ``step_s`` each; else only the first, or ``least``."""
    if before * step_s <= lead_s or before <= least:
        return OwnSteps(max(1, before), skips=False)
    return OwnSteps(least, skips=before > least)


def steps_before(environment: Mapping[str, Any]) -> int:
    """The number of steps of the continued run. The launched script repeats none of them."""
    if "steps_before" in environment:
        return int(environment["steps_before"])
    continues = environment.get("continues")
    return int(continues["step"]) if continues else 0


def updates_passed_over(environment: Mapping[str, Any]) -> int:
    """The number of updates by hand before the first that was recorded. The launched script repeats them as steps."""
    return int(environment.get("updates_passed_over") or 0)


def is_last_own_forward(call: MicroBatch | None, own_steps: int, wanted: int) -> bool:
    """Whether the forward belongs to the script's last own step, or follows it.

    An evaluation forward (``call`` is None) right before that step does not count: an epoch starts between the two, and
    the order of its batches comes from the script's own random state.
    """
    return own_steps >= wanted if call is None else own_steps + 1 >= wanted
