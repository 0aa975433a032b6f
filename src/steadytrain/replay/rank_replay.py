"""Replays all ranks of a run together: what each is launched with, and the result of all as one.

Every rank restores its own snapshot and gets its own recorded batches; the collectives between them are real. So the
steps repeat only as a whole. How many steps the script computes itself first is decided once, for all of them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from steadytrain.capture.hooks.seeding import hash_variables
from steadytrain.replay.from_script import STAY, STEPS_MODULE, open_source
from steadytrain.replay.moved_files import Moved
from steadytrain.replay.ports import free_port
from steadytrain.replay.rank_launch import RankCommand, RankFailure
from steadytrain.replay.verdict import Difference, OfRank, Replayed
from steadytrain.storage.bundle import is_bundle, open_bundle
from steadytrain.storage.rank_group import RankGroup

RESULT = "result.json"


def commands(
    group: RankGroup, scratch: Path, steps: tuple[int, int], trace_step: str, *, moved: Moved, lead_s: float
) -> list[RankCommand]:
    """The command of each rank. ``steps`` are the first and the last one, ``trace_step`` as the launched side reads
    it."""
    lead = common_lead(group, steps[0] - 1, moved, lead_s)
    return rank_commands(group, scratch, STEPS_MODULE, [str(steps[0]), str(steps[1]), trace_step, lead, STAY], moved)


def rank_commands(
    group: RankGroup, scratch: Path, module: str, arguments: Sequence[str], moved: Moved
) -> list[RankCommand]:
    """A command for each rank: ``python -m module SOURCE RESULT MOVED arguments``, in a folder of its own."""
    port, made = free_port(), []
    for rank, source in enumerate(group.sources):
        place = scratch / f"rank-{rank}"
        place.mkdir()
        result = place / RESULT
        command = ["-m", module, str(source.absolute()), str(result), str(moved), *arguments]
        environment = open_source(source, moved).environment
        variables = {**hash_variables(environment), **group.variables(rank, port=port)}
        made.append(RankCommand(command, result, variables, environment.get("cwd")))
    return made


def common_lead(group: RankGroup, before: int, moved: Moved, lead_s: float) -> str:
    """The time for the script's own steps that makes every rank compute the same number of them."""
    alone = [open_source(source, moved).own_steps(before, lead_s).skips for source in group.sources]
    return str(0.0 if any(alone) else math.inf)


def joined(replays: Sequence[Replayed], group: RankGroup) -> Replayed:
    """The replays of all ranks as one: exact if each is."""
    found = [
        replace(one.first_difference, rank=rank) for rank, one in enumerate(replays) if one.first_difference is not None
    ]
    own = replays[group.rank]
    batches = [one.script_batches_equal for one in replays]
    symptom = True if any(one.symptom for one in replays) else own.symptom
    failing = _failing_rank(replays, group) if symptom else None
    return replace(
        own,
        steps=min(one.steps for one in replays),
        first_difference=min(found, key=_place, default=None),
        symptom=symptom,
        script_batches_equal=False if False in batches else None if None in batches else True,
        notes=tuple(dict.fromkeys(note for one in replays for note in one.notes)),
        ranks=tuple(
            OfRank(rank, one.exact, one.steps, one.first_difference, one.loss_finite)
            for rank, one in enumerate(replays)
        ),
        failing_rank=failing,
        failing_place=None if failing is None else _first_bad(group.sources[failing]),
    )


def _failing_rank(replays: Sequence[Replayed], group: RankGroup) -> int | None:
    """The rank whose own loss was not finite. A bad gradient is on all ranks: then the one that the run had named."""
    bad = [rank for rank, one in enumerate(replays) if one.loss_finite is False]
    return bad[0] if bad else group.bad_rank


def _first_bad(source: Path) -> str | None:
    """The first bad operation of a rank with its line, or what it got that was bad before."""
    if not is_bundle(source):
        return None
    finding = open_bundle(source).finding
    located = finding.located
    if located is None:
        return finding.came_in or None
    place = f" ({os.path.basename(located.file)}:{located.line})" if located.file else ""
    module = f" in {located.module}" if located.module else ""
    return f"{located.operation_said}{module}{place}"


ORDER = ("batch", "random", "forward", "backward", "optimizer")
"""Phases of a step as they follow each other. What one rank computes otherwise reaches the others in backward."""


def _place(difference: Difference) -> tuple[int, int]:
    phase = difference.phase
    return difference.step, ORDER.index(phase) if phase in ORDER else len(ORDER)


def why_not(
    failure: RankFailure, group: RankGroup, *, wait_s: float, until: str = "last step", limit: str = "--wait-s"
) -> str:
    """Why the ranks did not reach ``until``. ``limit`` is what sets ``wait_s``."""
    if failure.ended is None:
        return f"rank {failure.rank} took more than {wait_s:g} s ({limit}); all ranks were ended"
    environment = open_source(group.sources[failure.rank], Moved(None, None)).environment
    return f"rank {failure.rank}: {failure.ended.before(until, environment)}; the other ranks were ended"
