"""How each rank of a run ended, and which of them ended first, from the folders of all ranks.

A launcher sends SIGTERM to the other ranks once one has ended badly, and a collective fails on a rank whose peer is
gone: neither is where the run broke. Clocks of hosts differ, so nothing here compares the times of two ranks. What no
record says stays unknown.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from steadytrain.core.errors import UsageError
from steadytrain.core.own_errors import own
from steadytrain.statistics.rank_rows import ranks_named
from steadytrain.storage.index_reading import open_index
from steadytrain.storage.left_overs import PROCESS, PROCESS_START
from steadytrain.storage.processes import state_of
from steadytrain.storage.ranks_of_run import rank_folder, recorded_ranks
from steadytrain.storage.run_folder import read_description
from steadytrain.storage.segments import newest_step
from steadytrain.storage.signal_notes import ended_by
from steadytrain.storage.stopped_recording import STOPPED_FILE

RANKS_MAX = 64
TEXT_MAX = 200
COMMUNICATION = Path("evidence") / "communication.json"

How: TypeAlias = Literal["finished", "stopped", "failed", "lost contact", "signal", "vanished", "open"]
"""``lost contact``: a collective failed. ``vanished``: its process is gone, and neither an end nor a signal is on
record. ``open``: it runs, or nobody knows."""

Kind: TypeAlias = Literal["failed", "fewer steps", "vanished", "signal", "elsewhere"]
"""``elsewhere``: all lost contact, and one of them waited at another line than all others."""

UNEVEN: Kind = "fewer steps"

_OF_A_PEER = re.compile(
    r"Connection (closed|reset) by peer|/gloo/|\bNCCL\b|\bDist(Backend|Network|Store)?Error\b|Broken pipe|"
    r"Timed out waiting \d+ms|Watchdog caught collective"
)
_IN_STEP = re.compile(r" in step (\d+)")
_AT_LINE = re.compile(r" at (\S+:\d+)")


@dataclass(frozen=True)
class RankEnd:
    """``step`` is the last one that the rank recorded, 0 for none; ``reached`` the one that it was in when it ended."""

    rank: int
    step: int
    how: How
    failure: str = ""
    signal: str = ""

    @property
    def reached(self) -> int:
        found = _IN_STEP.search(self.failure)
        return max(self.step, int(found[1])) if found else self.step

    @property
    def line(self) -> str:
        """File and line of the script at which its error arose; "" if no record says."""
        found = _AT_LINE.search(self.failure)
        return found[1] if found else ""

    @property
    def is_bad(self) -> bool:
        return self.how in ("failed", "lost contact", "signal", "vanished")


@dataclass(frozen=True)
class FirstEnd:
    """The rank with which the run ended, and what became of the others."""

    end: RankEnd
    others: tuple[RankEnd, ...]
    kind: Kind

    @property
    def reached(self) -> int:
        """The step that another rank came to."""
        return max((one.reached for one in self.others), default=0)

    @property
    def sentence(self) -> str:
        """Which rank ended first and how, and what followed."""
        signalled = [one.rank for one in self.others if one.how == "signal"]
        lost = [one.rank for one in self.others if one.how == "lost contact"]
        parts = [f"{ranks_named(lost)} lost contact"] if lost else []
        parts += [f"{ranks_named(signalled)} got SIGTERM after it"] if signalled else []
        return "; ".join([self.cause, *([", ".join(parts)] if parts else [])])

    @property
    def cause(self) -> str:
        """Which rank ended first, and how."""
        rank, step = self.end.rank, f"{self.end.step:,} step{'s' if self.end.step != 1 else ''}"
        if self.kind == "fewer steps":
            went_on = [one.rank for one in self.others if one.reached > self.end.step]
            return (
                f"rank {rank} ended after its {step} while {ranks_named(went_on)} went on to step {self.reached:,}: "
                "an uneven number of batches"
            )
        if self.kind == "elsewhere":
            waited = [one for one in self.others if one.how == "lost contact"]
            return (
                f"rank {rank} waited at {self.end.line} in step {self.end.reached:,} while "
                f"{ranks_named([one.rank for one in waited])} waited at {waited[0].line}: it did not make the call "
                "that they waited in"
            )
        if self.kind == "failed":
            return f"rank {rank} failed first: {self.end.failure or f'after step {self.end.step:,}'}"
        if self.kind == "signal":
            return f"rank {rank} ended first, by {self.end.signal} after its {step}"
        return (
            f"rank {rank} ended first, after its {step}, and left no record of how (SIGKILL, out of memory, a crash of "
            "the process, or its node)"
        )


def first_end_of(run_dir: Path, own_end: RankEnd | None = None) -> FirstEnd | None:
    """The rank with which the run in ``run_dir`` ended; None for one process, a run that ended well, or if no record
    says. ``own_end`` is that of the calling rank, whose end is not on record yet."""
    others = recorded_ranks(run_dir)[: RANKS_MAX - 1]
    if not others:
        return None
    known = {} if own_end is None else {own_end.rank: own_end}
    return first_end([known.get(rank) or rank_end(rank_folder(run_dir, rank), rank) for rank in (0, *others)])


def first_end(ends: Sequence[RankEnd]) -> FirstEnd | None:
    """Like :func:`first_end_of`, of ``ends``. It names a rank only if the records of all others agree with it."""
    if len(ends) < 2 or any(one.how == "stopped" for one in ends):
        return None
    kinds: tuple[tuple[Kind, list[RankEnd]], ...] = (
        ("failed", [one for one in ends if one.how == "failed"]),
        ("fewer steps", _short(ends)),
        ("vanished", [one for one in ends if one.how == "vanished"]),
        ("elsewhere", _elsewhere(ends)),
        ("signal", [one for one in ends if one.how == "signal"]),
    )
    kind, found = next((one for one in kinds if one[1]), kinds[0])
    if kind == "failed":
        found = [one for one in found if one.reached == min(other.reached for other in found)]
    if len(found) != 1:
        return None
    others = tuple(one for one in ends if one is not found[0])
    if kind == "signal" and not any(one.how == "lost contact" for one in others):
        return None  # a launcher ends all ranks by signals
    if kind == "vanished" and not any(one.is_bad or one.reached > found[0].step for one in others):
        return None
    return FirstEnd(found[0], others, kind)


def _elsewhere(ends: Sequence[RankEnd]) -> list[RankEnd]:
    """The rank that waited at another line than all others, of three or more that lost contact."""
    lost = [one for one in ends if one.how == "lost contact"]
    by_line: dict[str, list[RankEnd]] = {}
    for one in lost:
        by_line.setdefault(one.line, []).append(one)
    if len(lost) < 3 or len(by_line) != 2 or "" in by_line:
        return []
    fewer, more = sorted(by_line.values(), key=len)
    return fewer if len(fewer) == 1 < len(more) else []


def _short(ends: Sequence[RankEnd]) -> list[RankEnd]:
    """The ranks that finished while others, which lost contact or were ended, were in a later step."""
    hurt = [one for one in ends if one.how in ("lost contact", "signal")]
    lost = [one for one in hurt if one.how == "lost contact"]
    reached = max((one.reached for one in (lost or hurt)), default=0)
    waiting = bool(hurt) and not any(one.how == "vanished" for one in ends)
    return [one for one in ends if waiting and one.how == "finished" and one.step < reached]


def has_lost_rank(run_dir: Path) -> bool:
    """Whether a rank beside the first one left evidence that it lost contact: a look at names only."""
    others = recorded_ranks(run_dir)[: RANKS_MAX - 1]
    return any(os.path.isfile(rank_folder(run_dir, rank) / COMMUNICATION) for rank in others)


def lost_contact(failure: str) -> bool:
    """Whether the error that ended a script says that another rank no longer answers."""
    return _OF_A_PEER.search(failure) is not None


def rank_end(folder: Path, rank: int) -> RankEnd:
    """How the rank with this folder ended, as far as its records say."""
    try:
        description, facts = read_description(folder), _facts(folder)
        newest = newest_step(first_stream(folder))
    except own(UsageError, OSError):
        return RankEnd(rank, 0, "open")
    step = newest[0] if newest is not None else 0
    failure = str(facts.get("failure") or "")[:TEXT_MAX]
    ended = facts.get("ended")
    if ended == "failed" and failure.startswith("interrupted"):
        return RankEnd(rank, step, "signal", failure, "SIGINT")
    if ended == "failed":
        lost = (folder / COMMUNICATION).is_file() or lost_contact(failure)
        return RankEnd(rank, step, "lost contact" if lost else "failed", failure)
    if ended in ("finished", "stopped"):
        return RankEnd(rank, step, "finished" if ended == "finished" else "stopped")
    note = ended_by(folder)
    if note is not None:
        return RankEnd(rank, step, "signal", signal=note.signal)
    if (folder / COMMUNICATION).is_file():
        return RankEnd(rank, step, "lost contact")
    gone = state_of(description.get(PROCESS), description.get(PROCESS_START)) == "gone"
    return RankEnd(rank, step, "vanished" if gone and not (folder / STOPPED_FILE).exists() else "open")


def first_stream(folder: Path) -> Path:
    """The folder with the steps of the first stream of a rank."""
    try:
        names = sorted(os.listdir(folder / "steps"), key=lambda name: (name != "main", name))
    except own(OSError):
        names = []
    return folder / "steps" / (names[0] if names else "main")


def _facts(folder: Path) -> dict[str, Any]:
    with open_index(folder) as index:
        rows = index.execute("SELECT name, value FROM facts WHERE name IN ('ended', 'failure')").fetchall()
    return {name: json.loads(value) for name, value in rows}
