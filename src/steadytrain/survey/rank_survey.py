"""A survey of a run of several ranks: all are launched, and the facts are those of one.

All ranks follow the same steps from a snapshot that all have, because the collectives between them are real. Each wait
is bounded, and a rank that ends or waits in vain ends the survey.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from steadytrain.replay.from_script import STAY, Source
from steadytrain.replay.moved_files import Moved
from steadytrain.replay.rank_launch import run_ranks
from steadytrain.replay.rank_replay import rank_commands, why_not
from steadytrain.storage.rank_group import RankGroup, rank_group

WAIT_S_MAX = 120.0
"""Longest time of a survey of several ranks, in seconds: one that is stuck between ranks is not worth more."""


def surveyed(
    group: RankGroup, module: str, arguments: Sequence[str], scratch: Path, *, moved: Moved, wait_s: float
) -> dict[str, Any] | str:
    """The facts of the asked rank, or why there are none. ``arguments`` follow the source, the result and ``moved``."""
    commands = rank_commands(group, scratch, module, [*arguments, STAY], moved)
    failure = run_ranks(commands, wait_s=min(wait_s, WAIT_S_MAX), needed=(group.rank,))
    own = commands[group.rank].result
    if own.is_file():
        facts: dict[str, Any] = json.loads(own.read_text(encoding="utf-8"))
        return facts
    assert failure is not None
    return why_not(failure, group, wait_s=min(wait_s, WAIT_S_MAX), until="first update", limit="--budget")


def with_common_snapshots(opened: Source) -> Source:
    """``opened`` with the snapshots from which every rank of its run can start."""
    group = rank_group(opened.path)
    return opened if group is None else replace(opened, recording=group.common)
