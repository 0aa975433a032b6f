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

LOST_ANOTHER = ("Connection closed by peer", "Connection reset by peer", "remote worker crashing")
"""What gloo says on a rank when another one is gone."""


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
        lost = _wait(commands, children, wait_s, awaited)
        status = None if lost is None else children[lost].poll()
    for command in commands:
        note_written(command.result.parent)
    if lost is None:
        return None
    return RankFailure(lost, None if status is None else ended_with(status, _log(commands[lost])))


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
) -> int | None:
    """Waits for the results of the ranks ``awaited``. Returns None if they are there, else the rank that was lost: the
    first that ended without a result, or that has none at the end of the time."""
    until, lost = time.monotonic() + wait_s, None
    while True:
        ended = [child.poll() is not None for child in children]  # before the look at its result, which comes first
        late = [rank for rank, command in enumerate(commands) if not command.result.is_file()]
        if not any(rank in awaited for rank in late):
            return None
        gone = [rank for rank in late if ended[rank]]
        if gone and lost is None:
            lost = min(gone, key=lambda rank: _blames_another(commands[rank]))
            until = min(until, time.monotonic() + LEFT_BEHIND_S_MAX)
        if time.monotonic() > until or all(ended[rank] for rank in late):
            return late[0] if lost is None else lost
        time.sleep(LOOK_S)


def _blames_another(command: RankCommand) -> bool:
    """Whether the rank said that it lost another one: of several that ended at once it is not the first."""
    said = _log(command).read_text(encoding="utf-8", errors="replace")
    return any(text in said for text in LOST_ANOTHER)


def _log(command: RankCommand) -> Path:
    return command.result.parent / "output.txt"
