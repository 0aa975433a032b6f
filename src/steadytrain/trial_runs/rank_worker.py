"""A worker of the pool for a run of several ranks: each trial launches all of them, and ends all of them.

A rank is a stage of its own (``stage``) with the launcher's variables. No rank can be forked where trials begin: the
threads and connections of the process group would be lost. So each trial is its own launch. A rank that has its outcome
waits until all have theirs. Every wait is bounded. Torch-free.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from steadytrain.core.work_time import work_time
from steadytrain.experiments.rank_plans import alone, on_rank
from steadytrain.experiments.specs import NO_TIME_LEFT, Outcome, Spec
from steadytrain.replay.ports import free_port
from steadytrain.replay.rank_launch import LEFT_BEHIND_S_MAX
from steadytrain.storage.rank_group import RankGroup
from steadytrain.trial_runs.rank_outcomes import joined
from steadytrain.trial_runs.socket_messages import Line
from steadytrain.trial_runs.worker import LAUNCH_S_MAX, LOOK_S, Clock, Desk, Worker, resident_bytes

GONE = "its process ended before it had an outcome"


@dataclass
class _Rank:
    """One launched rank. ``why`` says why it has no outcome."""

    rank: int
    line: Line
    out: Path
    group: int = 0
    running: int = 0
    staged: bool = False
    why: str = ""

    def hear(self) -> None:
        """Take what it sent, for a moment."""
        try:
            message = self.line.receive(LOOK_S / 10)
        except EOFError:
            self.why = self.why or GONE
            return
        for name in ("group", "running"):
            if message is not None and name in message:
                setattr(self, name, int(message[name]))
        if message is not None and "refused" in message:
            self.why = str(message["refused"])
        self.staged = self.staged or (message is not None and "staged" in message)

    @property
    def is_over(self) -> bool:
        return bool(self.why) or self.out.is_file()


@dataclass
class _Wait:
    """The end of a wait: the time is over, or somebody stopped it."""

    clock: Clock
    stop: threading.Event
    left_behind: list[float] = field(default_factory=list)

    def over(self, ranks: Sequence[_Rank]) -> bool:
        """Whether to wait no longer. Once a rank is over, the others get a few more seconds."""
        if any(one.is_over for one in ranks) and not self.left_behind:
            self.left_behind.append(work_time() + LEFT_BEHIND_S_MAX)
        late = bool(self.left_behind) and work_time() > self.left_behind[0]
        return late or self.stop.is_set() or self.clock.over()


class RankWorker(Worker):
    """Runs one trial at a time on all ranks of ``group``."""

    def __init__(self, desk: Desk, group: RankGroup) -> None:
        super().__init__(desk, 0)
        self._ranks: list[_Rank] = []
        self._group_of_ranks = group

    def close(self) -> None:
        """Ends all ranks and everything that they started."""
        ranks, self._ranks = self._ranks, []
        for one in ranks:
            if one.group:
                with contextlib.suppress(OSError):
                    os.killpg(one.group, signal.SIGKILL)
            one.line.close()

    def _one(self, spec: Spec, stop: threading.Event, until: float | None) -> Outcome | None:
        try:
            why = self._launch_all(spec, stop, until) or self._run_all(spec, stop, until)
            outcomes = {one.rank: self._outcome(spec, one) for one in self._ranks}
        finally:
            self.close()
        return joined(spec, outcomes, asked=self._asked(spec), why=why)

    def _asked(self, spec: Spec) -> int:
        """The rank whose losses and probes count."""
        single = alone(spec)
        return self._group_of_ranks.rank if single is None else single

    def _launch_all(self, spec: Spec, stop: threading.Event, until: float | None) -> str | None:
        """Brings every rank to the start of the trial. Returns why it did not, None if it did."""
        self._launches += 1
        group, port, key = self._group_of_ranks, free_port(), self._desk.launch_key(spec)
        single = alone(spec)
        for rank in range(group.world) if single is None else (single,):
            make = group.variables if single is None else group.variables_alone
            place = self._desk.scratch / f"rank-{rank}-{self._launches}"
            place.mkdir()
            own = on_rank(spec, rank)
            line = self._desk.connect(
                key, own, place / "log.txt", source=group.sources[rank], variables=make(rank, port=port)
            )
            self._ranks.append(_Rank(rank, line, place / "outcome.json"))
        wait = _Wait(Clock(self._desk, LAUNCH_S_MAX, until, f"{spec.trial}: ranks launched"), stop)
        while not all(one.staged for one in self._ranks):
            if wait.over(self._ranks):
                return self._ended(wait, f"more than {LAUNCH_S_MAX:g} s to reach the start of the trials")
            for one in self._ranks:
                one.hear()
        return None

    def _run_all(self, spec: Spec, stop: threading.Event, until: float | None) -> str | None:
        """Runs the trial on every rank. Returns why it was given up, None if each rank is over."""
        for one in self._ranks:
            with contextlib.suppress(OSError):
                one.line.send({"spec": on_rank(spec, one.rank).to_json(), "out": str(one.out)})
        limit_s = self._desk.trial_s_max
        wait = _Wait(Clock(self._desk, limit_s, until, f"{spec.trial}: running on all ranks"), stop)
        while not all(one.is_over for one in self._ranks):
            if wait.over(self._ranks):
                return self._ended(wait, f"more than {limit_s:g} s")
            for one in self._ranks:
                one.hear()
            if sum(resident_bytes(one.running) for one in self._ranks if one.running) > self._desk.memory_bytes_max:
                return f"its ranks took more than {self._desk.memory_bytes_max / 1e9:.3g} GB of memory"
        return None

    def _ended(self, wait: _Wait, took: str) -> str:
        if wait.stop.is_set():
            return "it was interrupted"
        if wait.clock.spent:
            return NO_TIME_LEFT
        first = next((one for one in self._ranks if one.why), None)
        if first is not None:
            return f"rank {first.rank}: {first.why}"
        late = [str(one.rank) for one in self._ranks if not one.is_over]
        done = len(late) < len(self._ranks)
        waited = f"waited in vain after the others were over ({LEFT_BEHIND_S_MAX:g} s)" if done else f"took {took}"
        return f"rank {', '.join(late)} {waited}"

    @staticmethod
    def _outcome(spec: Spec, one: _Rank) -> Outcome:
        if one.out.is_file():
            return Outcome.from_json(json.loads(one.out.read_text(encoding="utf-8")))
        return Outcome(spec, False, one.why or None)
