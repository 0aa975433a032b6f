"""From steps to what a table says: ratios with their interval, spread over an arm's cadences."""

from __future__ import annotations

import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cost.arms import Arm
from cost.case import KINDS, LOOK, ORDINARY, RARE, kind_of
from cost.referee import Run

RESAMPLED = 2000
COVERAGE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A value and an interval that covers the true one in about 95 of 100 repetitions (bootstrap over rounds)."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Compared:
    """An arm against the one it is compared with.

    Args:
        ratio: of whole steps, over its cadences.
        look_ratio: of steps in which it looks deeper (its first cadence), None where it has none.
        added_ms: a step, over its cadences.
    """

    ratio: Estimate
    look_ratio: Estimate | None
    added_ms: Estimate


def against(run: Run, reference: Run) -> Compared:
    """Compare round by round, each kind of round by itself."""
    times = dict(zip(reference.numbers, reference.seconds, strict=True))
    pairs: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
    for number, seconds in zip(run.numbers, run.seconds, strict=True):
        if number in times:
            pairs[_kind_for(run.arm, number)].append((seconds, times[number]))
    ratios = {kind: [ours / bare for ours, bare in found] for kind, found in pairs.items()}
    added = {kind: [1000 * (ours - bare) for ours, bare in found] for kind, found in pairs.items()}
    look = ratios[LOOK] + ratios[RARE]
    return Compared(
        ratio=spread(ratios, run.arm),
        look_ratio=spread({ORDINARY: look}, None) if look else None,
        added_ms=spread(added, run.arm),
    )


def spread(values: Mapping[str, Sequence[float]], arm: Arm | None) -> Estimate:
    """The median of each kind, weighted by how often that kind comes in a long run."""
    shares = shares_of(arm) if arm is not None else {ORDINARY: 1.0}
    given = {kind: list(found) for kind, found in values.items() if found}

    def weighted(sample: Mapping[str, Sequence[float]]) -> float:
        ordinary = statistics.median(sample[ORDINARY])
        medians = {kind: statistics.median(found) for kind, found in sample.items()}
        return sum(share * medians.get(kind, ordinary) for kind, share in shares.items())

    if ORDINARY not in given:
        return Estimate(float("nan"), float("nan"), float("nan"))
    draw = random.Random(0)
    again = sorted(
        weighted({kind: draw.choices(found, k=len(found)) for kind, found in given.items()}) for _ in range(RESAMPLED)
    )
    tail = (1 - COVERAGE) / 2
    return Estimate(weighted(given), again[int(tail * RESAMPLED)], again[int((1 - tail) * RESAMPLED) - 1])


def shares_of(arm: Arm) -> dict[str, float]:
    """How often each kind of step comes in a long run of this arm."""
    rare = 1 / arm.rare_every if arm.rare_every else 0.0
    look = 1 / arm.look_every - rare if arm.look_every else 0.0
    return {ORDINARY: 1.0 - look - rare, LOOK: look, RARE: rare}


def _kind_for(arm: Arm, number: int) -> str:
    kind = kind_of(number)
    if kind == RARE and not arm.rare_every:
        kind = LOOK
    return ORDINARY if kind == LOOK and not arm.look_every else kind


def reads_added(run: Run, reference: Run) -> dict[str, int]:
    """Host reads that the arm adds, by the kind of step."""
    base = reference.reads.get(ORDINARY)
    return {} if base is None else {kind: found - base for kind, found in run.reads.items()}


@dataclass(frozen=True)
class Own:
    """Milliseconds of one part of steadytrain, by kind of step, and over the cadences of the level."""

    part: str
    by_kind: Mapping[str, float]
    a_step: float


def own_time(run: Run, first: int, *, clock: int = 0) -> list[Own]:
    """Where the time inside our entry points goes; ``clock`` 0 is wall-clock time, 1 the thread's processor time.

    Recording and detectors are taken from the long run after the timed steps, where files are cut and windows are full.
    """
    steps = {n: step for n, step in enumerate(run.facts["own"], start=1) if first < n <= run.numbers[-1]}
    long_run = run.facts["long_run"]
    found = []
    for part in dict.fromkeys([*(part for step in steps.values() for part in step), "detectors"]):
        kinds: dict[str, list[float]] = {}
        for number, step in steps.items():
            kinds.setdefault(_kind_for(run.arm, number), []).append(step.get(part, [0.0, 0.0])[clock])
        medians = {kind: statistics.median(values) for kind, values in kinds.items()}
        a_step = sum(share * medians.get(kind, 0.0) for kind, share in shares_of(run.arm).items())
        if part == "detectors":
            medians, a_step = {}, long_run["detectors"]
        elif part == "recorder":
            a_step = max(a_step, a_step - medians.get(ORDINARY, 0.0) + long_run["recorder"])
        found.append(Own(part, medians, a_step))
    return sorted(found, key=lambda own: -own.a_step)
