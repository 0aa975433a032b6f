"""Which trials to run next.

First what the control says; then what the leading cause still needs for its proof; then whatever separates the causes
best for its cost. One group test comes early: all that may be unsafe about how the numbers are computed is switched off
at once, and if the symptom stays, that whole branch is gone for the price of one trial. Costs are counted in steps and
launches, never in measured seconds, so that the choice is the same on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from steadytrain.diagnosis.answer import UNKNOWN
from steadytrain.diagnosis.trial_effects import group_tests
from steadytrain.diagnosis.weighing import Plain, Suspect, chance
from steadytrain.experiments.specs import Spec

LAUNCH_STEPS = 30.0
"""What a launch costs, in steps: imports and set-up of a small script."""

PROBE_STEPS = 0.34
"""What a probe costs: a forward of the three parts of a step."""

GROUP_SHARE_MIN = 0.1
"""Of the probability on causes that a group test would remove: below it the test is not worth its place."""

GAIN_MIN_NATS = 0.03
"""A trial that is expected to tell less than this is not run."""

HOPE_MIN = 0.03
"""Nor one that would remove the symptom only under causes that have less than this probability together."""

LEADING_MIN = 0.3
"""From this probability on a cause is worth its proof."""


def cost(specs: Sequence[Spec]) -> float:
    """Cost of a trial in steps."""
    return sum(
        LAUNCH_STEPS
        + (spec.begin or 0) * (1.0 if spec.lead == "all" else 0.0)
        + sum(PROBE_STEPS if entry.role == "probe" else 1.0 for entry in spec.schedule)
        for spec in specs
    )


def gain(trial: str, suspects: Sequence[Suspect], belief: Mapping[str, float]) -> float:
    """Expected fall of the entropy of ``belief`` by one run of ``trial``, in nats."""
    outcomes: tuple[Plain, ...] = ("removed", "persists")
    expected = {suspect.name: suspect.cause.expected(trial) for suspect in suspects}
    left = 0.0
    for outcome in outcomes:
        joint = [belief[name] * chance(outcome, expected.get(name, "either")) for name in belief]
        total = sum(joint)
        left += total * _entropy([weight / total for weight in joint])
    return _entropy(list(belief.values())) - left


def choose(
    suspects: Sequence[Suspect],
    belief: Mapping[str, float],
    costs: Mapping[str, float],
    needed: Sequence[str],
    *,
    count: int,
) -> tuple[str, ...]:
    """At most ``count`` names of ``costs`` (what could be run), best first; empty where none is worth it."""
    chosen = [trial for trial in needed if trial in costs][:count]
    for test in group_tests():
        if test in costs and test not in chosen and _removable(test, suspects, belief) >= GROUP_SHARE_MIN:
            chosen = [test, *chosen][:count]
    hopeful = [trial for trial in costs if trial not in chosen and _removable(trial, suspects, belief) >= HOPE_MIN]
    worth = {trial: gain(trial, suspects, belief) for trial in hopeful}
    order = sorted(worth, key=lambda trial: (-worth[trial] / costs[trial], trial))
    return (*chosen, *(trial for trial in order if worth[trial] >= GAIN_MIN_NATS))[:count]


def _removable(trial: str, suspects: Sequence[Suspect], belief: Mapping[str, float]) -> float:
    return sum(belief.get(suspect.name, 0.0) for suspect in suspects if suspect.cause.expected(trial) == "removed")


def leading(belief: Mapping[str, float]) -> tuple[str, ...]:
    """The causes that are worth their proof, most probable first."""
    return tuple(name for name, share in belief.items() if name != UNKNOWN and share >= LEADING_MIN)


def _entropy(shares: Sequence[float]) -> float:
    return -sum(share * math.log(share) for share in shares if share > 0.0)
