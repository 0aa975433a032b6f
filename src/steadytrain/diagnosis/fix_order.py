"""The fixes of a cause in the order in which they are offered, each with what its trial showed. Pure.

First what was seen to work on the replay, then what was not tried, last what was tried and did not work. Within each,
a change that mends the cause itself comes before one that only hides it (a smaller step, a batch left out), then fast
before invasive.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from steadytrain.diagnosis import interventions as shared
from steadytrain.diagnosis.answer import Remedy
from steadytrain.diagnosis.cause import Cause, Intervention
from steadytrain.experiments.specs import Verdict

PRICE = "price_before"
"""The number of a verdict that holds the price of its change: probe loss with it minus without it, before the onset."""

_SHARED: tuple[Intervention, ...] = tuple(one for one in vars(shared).values() if isinstance(one, Intervention))
_FAILED = ("persists", "worse", "delayed", "inconclusive", "not-run")


def remedies(
    cause: Cause,
    offered: Sequence[Intervention],
    verdicts: Sequence[Verdict],
    *,
    target: str,
    replayed: bool,
) -> tuple[Remedy, ...]:
    """The interventions in the order of this module.

    Args:
        target: the incident, for the commands; they are given if it was ``replayed``.
    """
    by_trial = {one.trial: one for one in verdicts}
    made = [_remedy(one, by_trial, target if replayed else None) for one in offered]
    mending = {one.name for one in offered if _mends(one, cause)}
    return tuple(sorted(made, key=lambda one: (_group(one), one.name not in mending, one.rung, one.name)))


def _remedy(one: Intervention, verdicts: Mapping[str, Verdict], target: str | None) -> Remedy:
    verdict = verdicts.get(one.trial) if one.trial else None
    command = f"steadytrain verify {shlex.quote(target)} --with {one.trial}" if one.trial and target else None
    works = verdict is not None and verdict.effect == "removed"
    return Remedy(
        one.name,
        one.rung,
        one.what,
        one.trial,
        verdict.effect if verdict is not None else None,
        command,
        price=verdict.numbers.get(PRICE) if works and verdict is not None else None,
        code=one.code,
    )


def _group(one: Remedy) -> int:
    if one.tried == "removed":
        return 0
    return 2 if one.tried in _FAILED else 1


def _mends(one: Intervention, cause: Cause) -> bool:
    """Whether the change is made for this cause: its proof, or an intervention that no other cause shares."""
    return one.trial in cause.confirming if one.trial is not None and one in _SHARED else one not in _SHARED
