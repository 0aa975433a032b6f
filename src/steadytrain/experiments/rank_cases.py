"""The case of a run of several ranks: where all of them can start together, and what all have on their tapes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from steadytrain.core.errors import UsageError
from steadytrain.experiments.case import Case, Ranks
from steadytrain.experiments.trial_starts import START
from steadytrain.storage.bundle import Bundle, is_bundle, open_bundle
from steadytrain.storage.rank_group import RankGroup, rank_group, world_of
from steadytrain.storage.state_before import held_before

Stretches = Sequence[tuple[int, int]]


def of_ranks(case: Case) -> Case:
    """``case`` as all ranks of its run can be launched; unchanged for a run of one process."""
    world = world_of(case.environment)
    if world < 2:
        return case
    try:
        group = rank_group(case.path)
    except UsageError as error:
        return replace(case, ranks=Ranks(world, why_not=str(error)))
    assert group is not None
    taped = case.taped
    for one in group.recordings:
        taped = _in_both(taped, one.stretches())
    starts = {shot.step for shot in group.common.snapshots}
    if taped and taped[0][0] == START + 1:
        starts.add(START)
    bundles = [open_bundle(source) if is_bundle(source) else None for source in group.sources]
    held = _held(group, bundles)
    return replace(
        case,
        ranks=Ranks(world, _failing(group, bundles), None, held),
        begins=tuple(begin for begin in case.begins if begin in starts),
        taped=taped,
        before=case.before if held == case.before else None,
    )


def _in_both(one: Stretches, other: Stretches) -> tuple[tuple[int, int], ...]:
    both = ((max(a[0], b[0]), min(a[1], b[1])) for a in one for b in other)
    return tuple(sorted((first, last) for first, last in both if first <= last))


def _held(group: RankGroup, bundles: Sequence[Bundle | None]) -> int | None:
    """The step before the incident, if every rank has a bundle of it that holds its state."""
    steps = {
        held_before(bundle.path, bundle.incident, recording) if bundle is not None else None
        for bundle, recording in zip(bundles, group.recordings, strict=True)
    }
    return steps.pop() if len(steps) == 1 else None


def _failing(group: RankGroup, bundles: Sequence[Bundle | None]) -> int:
    """The rank whose own loss was not finite; else the one that the run named, or that was asked for."""
    for rank, bundle in enumerate(bundles):
        if bundle is not None and not all(math.isfinite(loss) for loss in bundle.incident.losses):
            return rank
    return group.rank if group.bad_rank is None else group.bad_rank
