"""Launches a process for each rank and waits for the results of all. Every wait is bounded.

A rank that has its result waits for the others (``command_runner.stay``), because they may still need what it sent
them; this side ends all of them. If one ends without a result, the others, which would wait for it in a collective,
get a few seconds and are ended too.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from steadytrain.replay.child_processes import process_group
from steadytrain.replay.failing_step import Ended, ended_with
from steadytrain.replay.written_files import note_written

LOOK_S = 0.05
LEFT_BEHIND_S_MAX = 10.0
"""How long the other ranks may still take for their results once one has ended without any."""


@dataclass(frozen=True)
class RankCommand:
    """How to launch one rank: Python's arguments, the file for its result and its environment variables."""

    arguments: Sequence[str]
    result: Path
    variables: Mapping[str, str]
    folder: str | None


@dataclass(frozen=True)
class RankFailure:
    """Why there is not a result of every rank. ``ended`` is None if the time was over, or if ``rank`` only waited."""

    rank: int
    ended: Ended | None


def run_ranks(
    commands: Sequence[RankCommand], *, wait_s: float, needed: Collection[int] | None = None
) -> RankFailure | None:
    """Runs all ranks until each has written its result, for at most ``wait_s`` seconds. Returns None on success, else
    the first rank that ended without one, or that had none at the end of the time.

    Args:
        needed: the ranks whose results are enough; by default all.
    """
    awaited = range(len(commands)) if needed is None else needed
    with ExitStack() as stack:
        children = [_launched(stack, command) for command in commands]
        statuses = _wait(commands, children, wait_s, awaited)
    for command in commands:
        note_written(command.result.parent)
    late = [rank for rank, command in enumerate(commands) if not command.result.is_file()]
    if not any(rank in awaited for rank in late):
        return None
    gone = [rank for rank in late if statuses[rank] is not None]
    if gone:
        rank, status = gone[0], statuses[gone[0]]
        assert status is not None
        return RankFailure(rank, ended_with(status, _log(commands[rank])))
    return RankFailure(late[0], None) if late else None


def _launched(stack: ExitStack, command: RankCommand) -> subprocess.Popen[str]:
    output = stack.enter_context(_log(command).open("wb"))
    group = process_group(
        [sys.executable, *command.arguments],
        folder=command.folder,
        environment={**os.environ, **command.variables},
        stdout=output,
        stderr=output,
    )
    return stack.enter_context(group)


def _wait(
    commands: Sequence[RankCommand], children: Sequence[subprocess.Popen[str]], wait_s: float, awaited: Collection[int]
) -> list[int | None]:
    """The exit statuses when the wait is over, None for a rank that still ran."""
    until = time.monotonic() + wait_s
    while True:
        statuses = [child.poll() for child in children]
        there = [command.result.is_file() for command in commands]
        if all(there[rank] for rank in awaited) or time.monotonic() > until:
            return statuses
        if any(status is not None and not one for status, one in zip(statuses, there, strict=True)):
            until = min(until, time.monotonic() + LEFT_BEHIND_S_MAX)
        time.sleep(LOOK_S)


def _log(command: RankCommand) -> Path:
    return command.result.parent / "output.txt"
