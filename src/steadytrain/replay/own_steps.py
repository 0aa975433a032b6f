"""The number of steps that a launched script computes itself before the recorded ones are fed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class OwnSteps:
    """``wanted`` is at least one. ``skips`` says whether the script leaves out steps before the recorded ones."""

    wanted: int
    skips: bool


def own_steps(before: int, *, step_s: float, lead_s: float) -> OwnSteps:
    """All ``before`` if they fit into ``lead_s`` seconds at ``step_s`` each; else only the first."""
    if before * step_s <= lead_s:
        return OwnSteps(max(1, before), skips=False)
    return OwnSteps(1, skips=before > 1)


def steps_before(environment: Mapping[str, Any]) -> int:
    """The number of steps of the continued run. The launched script repeats none of them."""
    if "steps_before" in environment:
        return int(environment["steps_before"])
    continues = environment.get("continues")
    return int(continues["step"]) if continues else 0
