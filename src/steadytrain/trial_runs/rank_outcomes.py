"""The outcomes of all ranks of a trial as one. Pure.

Losses and probes are those of one rank, which the control shows as well. A step is finite only if it was on every rank,
and a replay is exact only if it was on every rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from steadytrain.experiments.specs import Outcome, Spec


def joined(spec: Spec, outcomes: Mapping[int, Outcome], *, asked: int, why: str | None) -> Outcome:
    """One outcome of ``spec``: that of the rank ``asked`` with what the others add.

    Args:
        outcomes: by rank; one that has not ran has the reason, or none if it was ended while it waited.
        why: why the ranks were ended before all were over.
    """
    length = max((len(one.steps) for one in outcomes.values() if one.ran), default=0)
    # A change that touched nothing on one rank, an operation in its batch for example, may have on another.
    ran = {rank: one for rank, one in outcomes.items() if one.ran or 0 < length == len(one.steps)}
    bad = {rank: one.first_nonfinite for rank, one in ran.items() if one.first_nonfinite is not None}
    failed = [(rank, one.why_not) for rank, one in sorted(outcomes.items()) if one.why_not and rank not in ran]
    lost = f"rank {failed[0][0]}: {failed[0][1]}" if failed else None
    if len(ran) < len(outcomes) and not (bad and lost is None):
        return Outcome(spec, False, why or lost or "no rank had an outcome", seconds=_seconds(outcomes))
    # A rank that found a value that is not finite ends there; the others may wait for it, and are ended too.
    base = ran[asked] if asked in ran else ran[min(bad, key=lambda rank: bad[rank])]
    first = min(bad.values(), default=None)
    steps = tuple(
        replace(seen, finite=False) if seen.entry == first else seen
        for seen in base.steps
        if first is None or seen.entry <= first
    )
    exact = [one.exact for one in ran.values()]
    return replace(
        base,
        spec=spec,
        ran=True,
        why_not=None,
        steps=steps,
        exact=False if False in exact else None if None in exact else True,
        seconds=_seconds(outcomes),
        notes=tuple(dict.fromkeys(note for one in ran.values() for note in one.notes)),
    )


def _seconds(outcomes: Mapping[int, Outcome]) -> float:
    return max((one.seconds for one in outcomes.values()), default=0.0)
