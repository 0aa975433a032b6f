"""Choose the next trials.

First come the trials that the leading cause needs for its proof, then whatever separates the causes best for its cost.
One group test comes early: it disables everything unsafe in how the numbers are computed, and if the symptom stays, one
trial has excluded that whole branch. Costs are in steps and launches, never in measured seconds, so the choice is the
same on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from steadytrain.detectors import Aim
from steadytrain.diagnosis.answer import UNKNOWN
from steadytrain.diagnosis.trial_effects import group_tests
from steadytrain.diagnosis.weighing import Plain, Suspect, chance
from steadytrain.experiments.specs import Spec, Verdict

LAUNCH_STEPS = 30.0
"""Cost of a launch in steps: imports and set-up of a small script."""

PROBE_STEPS = 0.34
"""Cost of a probe in steps: a forward is a third of a step."""

GROUP_SHARE_MIN = 0.1
"""A group test needs at least this total probability of causes that it would remove."""

GAIN_MIN_NATS = 0.03
"""A trial with a smaller expected information gain is not run."""

HOPE_MIN = 0.03
"""A trial is not run if the causes whose symptom it would remove have less than this total probability."""

CUSTOMARY: Mapping[Aim, tuple[str, ...]] = {
    "finite": ("learning-rate-tenth", "clip-usual", "longer-warmup"),
    "progress": (
        *("learning-rate-up", "learning-rate-tenth", "longer-warmup", "constant-learning-rate", "clip-usual"),
        *("momentum-lower", "weight-decay-none", "dropout-none", "train-mode"),
    ),
    "excess": (),
}
"""Trials of the fixes that people reach for first, by what a trial is judged by."""

LEADING_MIN = 0.3
"""Probability from which on a cause is worth proving."""


def cost(specs: Sequence[Spec]) -> float:
    """Cost of a trial in steps."""
    return sum(
        LAUNCH_STEPS
        + (spec.begin or 0) * (1.0 if spec.lead == "all" else 0.0)
        + sum(PROBE_STEPS if entry.role == "probe" else 1.0 for entry in spec.schedule)
        for spec in specs
    )


def gain(trial: str, suspects: Sequence[Suspect], belief: Mapping[str, float]) -> float:
    """Expected reduction of the entropy of ``belief`` by one run of ``trial``, in nats."""
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
    """At most ``count`` of the trials in ``costs`` (those that can run), best first; empty if none is worth its
    cost.
    """
    chosen = [trial for trial in needed if trial in costs][:count]
    for test in group_tests():
        if test in costs and test not in chosen and _removable(test, suspects, belief) >= GROUP_SHARE_MIN:
            chosen = [test, *chosen][:count]
    hopeful = [trial for trial in costs if trial not in chosen and _removable(trial, suspects, belief) >= HOPE_MIN]
    worth = {trial: gain(trial, suspects, belief) for trial in hopeful}
    order = sorted(worth, key=lambda trial: (-worth[trial] / costs[trial], trial))
    return (*chosen, *(trial for trial in order if worth[trial] >= GAIN_MIN_NATS))[:count]


def customary(aim: Aim, verdicts: Mapping[str, Verdict], costs: Mapping[str, float]) -> tuple[str, ...]:
    """What a practitioner tries before giving up: the trials of ``CUSTOMARY`` that can run, if none so far removed the
    symptom. They tell little of the cause, but may show a fix.
    """
    if any(verdict.effect == "removed" for verdict in verdicts.values()):
        return ()
    return tuple(trial for trial in CUSTOMARY[aim] if trial in costs and trial not in verdicts)


def _removable(trial: str, suspects: Sequence[Suspect], belief: Mapping[str, float]) -> float:
    return sum(belief.get(suspect.name, 0.0) for suspect in suspects if suspect.cause.expected(trial) == "removed")


def leading(belief: Mapping[str, float]) -> tuple[str, ...]:
    """The causes worth proving, most probable first."""
    return tuple(name for name, share in belief.items() if name != UNKNOWN and share >= LEADING_MIN)


def _entropy(shares: Sequence[float]) -> float:
    return -sum(share * math.log(share) for share in shares if share > 0.0)
