"""What a rank was doing while no rank made a step: a file in its folder, written once the silence was too long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from steadytrain.core.bounded_files import read_json
from steadytrain.core.errors import UsageError
from steadytrain.core.own_errors import own, unless_it_fails
from steadytrain.storage.documents import as_json
from steadytrain.storage.ranks_of_run import part_shown
from steadytrain.storage.redaction import redact_text
from steadytrain.storage.run_folder import Run
from steadytrain.storage.stopped_recording import stopped_sentence

STALL_FILE = "stalled.json"
STALLS = "stalls"
"""The fact of a run with the stalls after which its training went on: a list of what :func:`kept_stall` makes."""

STALLS_MAX = 16
TEXT_MAX = 200
FRAMES_MAX = 24
RANKS_MAX = 64
BYTES_MAX = 1 << 18


@dataclass(frozen=True)
class Stall:
    """``step`` is the last one that the rank made, ``silent_s`` the seconds since then. ``line`` is where the script
    was (``train.py:31``), ``code`` that line, ``inside`` the function of a library that it called, "" for none.
    ``stack`` has all frames, innermost last."""

    rank: int
    step: int
    silent_s: float
    line: str
    code: str
    inside: str
    stack: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        inside = f", inside {self.inside}" if self.inside else ""
        return f"rank {self.rank}, {self.silent_s:.0f} s after its step {self.step}: {self.line}{inside}: {self.code}"


def write_stall(folder: Path, stall: Stall) -> None:
    """Write it with the secrets in its code redacted. Raises nothing: the run goes on, or hangs, without it."""
    kept = {**asdict(stall), "stack": [redact_text(one)[:TEXT_MAX] for one in stall.stack[-FRAMES_MAX:]]}
    kept["code"] = redact_text(stall.code)[:TEXT_MAX]
    with unless_it_fails(OSError):
        (folder / STALL_FILE).write_text(as_json(kept) + "\n", encoding="utf-8")


def read_stall(folder: Path) -> Stall | None:
    """The stall on record; None if there is none or it cannot be read."""
    try:
        found = read_json(folder / STALL_FILE, bytes_max=BYTES_MAX)
        return Stall(
            rank=int(found["rank"]),
            step=int(found["step"]),
            silent_s=float(found["silent_s"]),
            stack=tuple(map(str, found["stack"])),
            **{name: str(found[name]) for name in ("line", "code", "inside")},
        )
    except own(OSError, UsageError, ValueError, KeyError, TypeError, RecursionError):
        return None


def kept_stall(first: Stall, silent_s: float) -> dict[str, Any]:
    """A stall that is over, for the fact ``stalls``: ``first`` is the rank that the others waited for first.
    ``silent_s`` are the seconds without a step."""
    where = {name: getattr(first, name) for name in ("rank", "step", "line", "inside")}
    return {**where, "code": redact_text(first.code)[:TEXT_MAX], "silent_s": round(silent_s, 1)}


def stall_before(run: Run) -> str:
    """The longest stall after which the training went on, in a clause; "" without one."""
    found = run.facts.get(STALLS)
    stalls = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
    try:
        longest = max(stalls, key=lambda one: float(one["silent_s"]))
        inside = f", inside {longest['inside']}" if longest["inside"] else ""
        more = f" ({len(stalls) - 1} more stall{'s' if len(stalls) > 2 else ''})" if len(stalls) > 1 else ""
        return (
            f"no step was made for {float(longest['silent_s']):.0f} s after step {int(longest['step'])}, where rank "
            f"{int(longest['rank'])} was at {longest['line']}{inside}{more}"
        )
    except own(ValueError, KeyError, TypeError):
        return ""


def at_the_end(run: Run) -> tuple[str, ...]:
    """What a report says first of how a run went on: that it is a part of one, that its recording stopped, and that its
    steps did."""
    part = part_shown(run)
    first = (f"{part[:1].upper()}{part[1:]}.",) if part else ()
    return (*first, *stopped_sentence(run.path), *stall_sentences([run.path, *run.ranks]))


def stall_sentences(folders: Sequence[Path]) -> list[str]:
    """Where each of the ranks in ``folders`` was, the one that the others waited for first."""
    stalls = [stall for folder in folders[:RANKS_MAX] if (stall := read_stall(folder)) is not None]
    return [f"No step was made for a long time: {one.sentence}." for one in waited_for_first(stalls)]


def waited_for_first(stalls: list[Stall]) -> list[Stall]:
    """The ranks with the fewest steps, and then those that were at a line of their own, before the others."""
    lines = [stall.line for stall in stalls]
    return sorted(stalls, key=lambda stall: (stall.step, lines.count(stall.line), _waits(stall), stall.rank))


def _waits(stall: Stall) -> bool:
    return any(word in stall.inside.lower() for word in WAITING)


WAITING = (
    "reduce",
    "gather",
    "barrier",
    "broadcast",
    "scatter",
    "all_to_all",
    "wait",
    "backward",
    "recv",
    "synchronize",
)
"""Words in the names of functions that wait for other ranks."""
