"""Watches whether the steps of several ranks go on, and says where each rank is if they do not.

A thread of each process compares the time since the last step with the usual time of a step. After a long silence it
writes the stack of the training thread into the folder of its rank, once for each stall, and the first rank reports
what all of them wrote. Nothing is ended: the script's own time limits do that. A run of one process has no such thread.
"""

from __future__ import annotations

import linecache
import os
import statistics
import sys
import sysconfig
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from steadytrain.capture.incident.crash.communication import flight_recorder
from steadytrain.capture.step import ranks
from steadytrain.capture.step.live_run import LiveRun
from steadytrain.capture.step.observers import StepObserver
from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.compare.collective_sentences import collective_sentences
from steadytrain.core.own_errors import unless_it_fails
from steadytrain.storage.flight_records import COLLECTIVES_FILE, write_record
from steadytrain.storage.rank_endings import rank_end
from steadytrain.storage.ranks_of_run import rank_folder
from steadytrain.storage.stalls import (
    STALL_FILE,
    STALLS,
    STALLS_MAX,
    Stall,
    kept_stall,
    read_stall,
    waited_for_first,
    write_stall,
)

STALLED_S_MIN = 60.0
STALLED_TIMES = 20.0
"""A stall is a silence of so many usual steps, and of ``STALLED_S_MIN``: an evaluation takes as long as some steps."""

CHECK_S = 5.0
OTHERS_S_MAX = 8.0
"""How long the first rank waits for what the others write: they check every ``CHECK_S`` seconds."""

RANKS_SHOWN_MAX = 8
ENDED_ASKED_MAX = 64
STEPS_KEPT = 64
FRAMES_MAX = 64
_LIBRARIES = (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
_OWN_FOLDER = str(Path(__file__).parents[2])


class RankStalls(StepObserver):
    """A guest of every process; its thread starts with the first step of several ranks."""

    def __init__(self, run: LiveRun) -> None:
        self._run = run
        self._training = threading.get_ident()
        self._process = os.getpid()
        self._steps: deque[float] = deque(maxlen=STEPS_KEPT)
        self._last: tuple[int, float] | None = None
        self._reported: int | None = None
        self._waited_for: Stall | None = None
        self._kept: list[dict[str, Any]] = []
        self._closing = threading.Event()
        self._folder: Path | None = None
        self._thread: threading.Thread | None = None

    def step_ended(self, stream: Stream, folder: Path | None) -> None:
        now = time.monotonic()
        if self._last is not None:
            self._steps.append(now - self._last[1])
        self._last = stream.step, now
        if self._reported is not None:
            self._goes_on(stream.step)
        if self._thread is None and folder is not None and ranks.world_size() > 1:
            self._training, self._folder = threading.get_ident(), folder
            self._thread = threading.Thread(target=self._watch, args=(folder,), name="steadytrain-stalls", daemon=True)
            self._thread.start()

    def script_ended(self) -> None:
        self._closing.set()

    def close(self, *, finished: bool, noted: bool) -> None:
        self._closing.set()

    def forget(self) -> None:
        self._closing.set()

    def _goes_on(self, step: int) -> None:
        silent = self._steps[-1] if self._steps else 0.0
        self._reported = None
        if self._folder is not None:
            with unless_it_fails(OSError):
                (self._folder / STALL_FILE).unlink(missing_ok=True)
                (self._folder / COLLECTIVES_FILE).unlink(missing_ok=True)
        waited, self._waited_for = self._waited_for, None
        where = ""
        if waited is not None:
            where = f"; rank {waited.rank} was at {waited.line}{f', inside {waited.inside}' if waited.inside else ''}"
            self._kept = [*self._kept, kept_stall(waited, silent)][-STALLS_MAX:]
            self._run.recorder.set_fact(STALLS, self._kept)
        self._run.note(f"step {step} was made after {silent:.0f} s without a step: the training goes on{where}")

    # -- in the thread ---------------------------------------------------------------------------------------------

    def _watch(self, folder: Path) -> None:
        with self._run.guard.part("watching for a stall"):
            while not self._closing.wait(CHECK_S) and os.getpid() == self._process:
                last = self._last
                if last is None or last[0] == self._reported:
                    continue
                silent = time.monotonic() - last[1]
                usual = statistics.median(list(self._steps)) if self._steps else 0.0
                if silent > max(STALLED_S_MIN, STALLED_TIMES * usual):
                    self._reported = last[0]
                    self._report(folder, last[0], silent)

    def _report(self, folder: Path, step: int, silent_s: float) -> None:
        frame = sys._current_frames().get(self._training)
        line, code, inside, stack = where(frame)
        with suppress(Exception):  # torch's recorder may be off, or of another form
            if (trace := flight_recorder()) is not None:
                write_record(folder, ranks.rank(), trace)
        own = Stall(ranks.rank(), step, silent_s, line, code, inside, stack)
        write_stall(folder, own)
        if not ranks.speaks(self._run.settings.run_dir):
            return
        stalls = self._of_all(folder)
        self._waited_for = next(iter(waited_for_first(stalls)), own)
        told = [f"  {stall.sentence}" for stall in waited_for_first(stalls)[:RANKS_SHOWN_MAX]]
        more = [f"  and {len(stalls) - RANKS_SHOWN_MAX} more ranks"] if len(stalls) > RANKS_SHOWN_MAX else []
        called = [f"  {sentence}" for sentence in collective_sentences(folder)]
        head = f"warning: no step for {silent_s:.0f} s. Where the ranks are; the first is the one to look at:"
        self._run.tell(
            "\n".join(
                [
                    head,
                    *self._ended(folder, stalls),
                    *called,
                    *told,
                    *more,
                    f"  stacks: {STALL_FILE} in the folder of each rank",
                ]
            )
        )

    def _ended(self, folder: Path, stalls: Sequence[Stall]) -> list[str]:
        """The ranks that have ended, for which the others wait in vain."""
        silent = [rank for rank in range(ranks.world_size()) if rank not in {stall.rank for stall in stalls}]
        ends = [rank_end(rank_folder(folder, rank), rank) for rank in silent[:ENDED_ASKED_MAX]]
        return [
            f"  rank {one.rank} has ended after its step {one.step} ({one.how})" for one in ends if one.how != "open"
        ][:RANKS_SHOWN_MAX]

    def _of_all(self, folder: Path) -> list[Stall]:
        """The stalls of all ranks, as far as they come within ``OTHERS_S_MAX``."""
        began = time.monotonic()
        folders = [rank_folder(folder, rank) for rank in range(ranks.world_size())] if ranks.rank() == 0 else [folder]
        while True:
            found = [stall for one in folders if (stall := read_stall(one)) is not None]
            if len(found) == len(folders) or time.monotonic() - began > OTHERS_S_MAX or self._closing.wait(0.2):
                return found


def where(frame: FrameType | None) -> tuple[str, str, str, tuple[str, ...]]:
    """Line and code of the innermost frame of the script, the library's function that it called, and the stack."""
    line = code = inside = ""
    stack: list[str] = []
    for _ in range(FRAMES_MAX):
        if frame is None:
            break
        name, number, function = frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name
        frame = frame.f_back
        if name.startswith(_OWN_FOLDER):
            continue
        stack.append(f"{name}:{number} {function}")
        if line:
            continue
        if name.startswith(_LIBRARIES) or name.startswith("<frozen"):
            inside = function
        else:
            line, code = f"{Path(name).name}:{number}", linecache.getline(name, number).strip()
    return line or "an unknown line", code, inside, tuple(reversed(stack))
