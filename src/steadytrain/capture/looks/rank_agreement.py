"""Follows the ranks of a run that train together: each records its digests, and the first rank compares all records.

Only the first stream is compared. No collective is made, and no rank waits for another: the first rank reads what is on
disk. Not here: the digests, the comparison, and whether a difference is a fault (``detectors``).
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np

from steadytrain.capture.looks.held_parameters import is_sharded
from steadytrain.capture.looks.rank_comparison import RATIO_STEPS, RankComparison
from steadytrain.capture.looks.rank_records import RankRecords
from steadytrain.capture.looks.replica_digests import PROBE_STEPS_MAX, ReplicaDigests, probe
from steadytrain.capture.step import ranks
from steadytrain.capture.step.gate import Measurement
from steadytrain.capture.step.live_run import LiveRun
from steadytrain.capture.step.observers import StepObserver
from steadytrain.capture.step.optimizer_streams import StepInProgress, Stream
from steadytrain.core.errors import UsageError
from steadytrain.core.model import Reading
from steadytrain.grouping.one_rank import follows, rank_loss
from steadytrain.statistics.rank_rows import ranks_named
from steadytrain.storage.rank_differences import between_ranks
from steadytrain.storage.rank_endings import UNEVEN, RankEnd, first_end_of, lost_contact
from steadytrain.storage.ranks_of_run import SHARE_FOLDER, UNSEEN_RANKS, rank_folder, rank_name
from steadytrain.storage.run_folder import RUN_FILE
from steadytrain.storage.run_news import NewsReader

RANKS_MAX = 64
"""Ranks that are compared: the first ones. Each costs a few files."""

KNOWN_MAX = 512
"""Rows of the table over the whole run: other tensors may differ at other times."""

COMPARED_STEPS = 8
ALWAYS_COMPARED = (8, 16, 32, 64, 128)
END_S_MAX = 3.0
"""How long the first rank waits for the last records of the others."""

UNSEEN_S = 60.0
"""How long after the first step the folder of another rank may be missing: file systems that machines share may show
new folders that late."""

_PAUSE_S = 0.05
SHARE_MAX = 0.003
"""Share of the training time that reading and comparing may take."""


class RankAgreement(StepObserver):
    """A guest of every process. It does nothing in a run of one process."""

    def __init__(self, run: LiveRun) -> None:
        self._run = run
        self._digests = ReplicaDigests()
        self._readings: list[Reading] = []
        self._comparison: RankComparison | None = None
        self._records: dict[int, RankRecords] = {}
        self._news: dict[Path, NewsReader] = {}
        self._told: set[str] = set()
        self._known: list[str] = []
        self._rows: dict[str, float] = {}
        self._shared_how: dict[str, float] = {}
        self._ended_early: dict[str, float] = {}
        self._next = 0.0
        self._works = True
        self._expected: list[int] = []
        self._began = 0.0
        self._missed = False

    def gate(self, stream: Stream, seen: StepInProgress, measured: Measurement) -> None:
        step = measured.record.step
        if not self._follows(stream):
            return
        with self._guarded():
            if self._digests.is_due(step):
                self._shared_how = _shared_how(stream)
                self._readings.append(self._digests.take(step, stream, seen.micro_batches))
            if step <= PROBE_STEPS_MAX and (small := probe(stream.parameters)) is not None:
                self._readings.append(small)

    def step_ended(self, stream: Stream, folder: Path | None) -> None:
        if folder is None or not self._follows(stream):
            return
        with self._guarded():
            readings, self._readings = self._readings, []
            for reading in readings:
                self._run.recorder.read(stream, stream.step, self._run.clock(), reading)
            if not self._began:
                self._began, self._expected = time.monotonic(), _expected(stream)
            if ranks.rank() == 0 and self._is_due(stream.step):
                self._compare(stream, folder)

    def script_ended(self) -> None:
        stream = next(iter(self._run.streams), None)
        if stream is None or not stream.step or not self._follows(stream):
            return
        with self._guarded():
            self._ended_early = self._uneven(stream)
        if ranks.rank() == 0:
            with self._guarded():
                folder = self._run.recorder.begin().path
                self._find(stream, folder, is_over=True)
                self._wait(stream.step)
                self._compare(stream, folder)
                self._report_differences()
        elif self._ended_early:
            with self._guarded():
                self._read(stream, self._ended_early)

    def forget(self) -> None:
        self._works = False

    def _follows(self, stream: Stream) -> bool:
        return self._works and stream is self._run.streams[0] and ranks.world_size() > 1

    def _wait(self, step: int) -> None:
        """For the other ranks to record ``step`` or their end: they are moments behind."""
        until = time.monotonic() + END_S_MAX
        waiting = dict(zip(self._news, list(self._records.values())[1:], strict=True))
        while waiting and time.monotonic() < until:
            for folder, records in list(waiting.items()):
                records.read()
                if max(records.steps, default=0) >= step or "ended" in self._news[folder].read().facts:
                    del waiting[folder]
            time.sleep(_PAUSE_S if waiting else 0.0)

    def _is_due(self, step: int) -> bool:
        """In the first steps always, then as often as it is cheap. The detectors look at the next multiple of 8."""
        if step % COMPARED_STEPS != COMPARED_STEPS - 1:
            return False
        return step + 1 in ALWAYS_COMPARED or time.perf_counter() >= self._next

    def _guarded(self) -> AbstractContextManager[None]:
        return self._run.guard.part("comparing the ranks")

    def _compare(self, stream: Stream, folder: Path) -> None:
        began = time.perf_counter()
        self._find(stream, folder)
        rows: dict[str, float] = {}
        if len(self._records) > 1:
            try:
                for records in self._records.values():
                    records.read()
            except UsageError as error:
                self._works = False
                self._run.note(f"the ranks are no longer compared: {error}")
                return
            if self._comparison is None:
                self._comparison = RankComparison(self._records)
            rows = self._comparison.rows()
            self._report_symptoms(rows)
        if rows:
            self._rows = rows | self._shared_how
        if rows or self._ended_early:
            self._read(stream, self._rows | self._ended_early)
        took = time.perf_counter() - began
        self._next = began + took / SHARE_MAX

    def _read(self, stream: Stream, rows: dict[str, float]) -> None:
        self._known += [name for name in rows if name not in self._known][: KNOWN_MAX - len(self._known)]
        values = np.array([[rows.get(name, np.nan)] for name in self._known], np.float32)
        reading = Reading("ranks", tuple(self._known), ("value",), values)
        self._run.recorder.read(stream, stream.step, self._run.clock(), reading)

    def _uneven(self, stream: Stream) -> dict[str, float]:
        """Rows on a rank that ended before this one lost contact. The first rank has them, or another one if it is
        the one that ended."""
        failure = self._run.failure or ""
        if not lost_contact(failure):
            return {}
        own = RankEnd(ranks.rank(), stream.step, "lost contact", failure)
        first = first_end_of(self._run.settings.run_dir, own)
        if first is None or first.kind != UNEVEN:
            return {}
        ended = first.end
        lost = [one.rank for one in first.others if one.how == "lost contact"]
        if own.rank != (min(lost) if ended.rank == 0 else 0):
            return {}
        return {f"ended-after:{ended.rank}": float(ended.step), f"went-on:{ended.rank}": float(first.reached)}

    def _report_symptoms(self, rows: Mapping[str, float]) -> None:
        """Report what only another rank has seen, once for each kind of symptom."""
        own = {symptom.name for symptom in self._run.recorder.symptoms.values() if symptom.severity != "note"}
        for rank, (folder, news) in enumerate(self._news.items(), start=1):
            since = self._large_loss_since(rank, rows)
            for symptom in news.read().symptoms:
                if since and follows(symptom, since=since):
                    continue
                if symptom.severity != "note" and symptom.name not in own | self._told:
                    self._told.add(symptom.name)
                    self._run.tell(f"{symptom.severity}, {rank_name(folder)}: {symptom.message}")

    def _large_loss_since(self, rank: int, rows: Mapping[str, float]) -> float:
        """Since when the loss of a rank is many times that of the others; 0 if it is not. What follows from it is not
        reported by itself, and waits while it is not decided yet."""
        known = rank_loss(self._run.recorder.symptoms.values())
        if known is not None and known.numbers.get("rank") == rank:
            return known.first_step
        since = rows.get(f"loss-ratio-since:{rank}", 0.0)
        undecided = rows.get("compared:all", 0.0) - since < RATIO_STEPS + 2 * COMPARED_STEPS
        return since if undecided else 0.0

    def _find(self, stream: Stream, folder: Path, *, is_over: bool = False) -> None:
        """Follow every rank from the first comparison on at which all have a folder; report it if some never have."""
        if self._records:
            return
        count = min(ranks.world_size(), RANKS_MAX)
        folders = [rank_folder(folder, rank) for rank in range(count)]
        missing = _without_records(folders)
        while missing and is_over and self._expected and time.monotonic() < self._began + END_S_MAX:
            time.sleep(_PAUSE_S)
            missing = _without_records(folders)
        if missing:
            if is_over or time.monotonic() > self._began + UNSEEN_S:
                self._report_missing([rank for rank in missing if rank in self._expected])
        else:
            if self._missed:
                self._run.recorder.set_fact(UNSEEN_RANKS, [])
            self._records = {rank: RankRecords(one, stream.name) for rank, one in enumerate(folders)}
            self._news = {one: NewsReader(one) for one in folders[1:]}
            self._report_differences()

    def _report_differences(self) -> None:
        """Report versions and clocks that differ between the ranks, each once."""
        for line in between_ranks(self._run.settings.run_dir):
            what = line.partition(" is ")[0]  # a clock's shift is measured again at the end
            if what not in self._told:
                self._told.add(what)
                self._run.tell(f"note: {line}")

    def _report_missing(self, missing: Sequence[int]) -> None:
        if missing and not self._missed:
            self._missed = True
            self._run.recorder.set_fact(UNSEEN_RANKS, list(missing))
            folders = f"folder{'s' if len(missing) > 1 else ''} of {ranks_named(missing)}"
            self._run.note(
                f"rank 0 cannot see the {folders}, so the ranks are not compared and what other ranks see may not be "
                f"reported; {SHARE_FOLDER}"
            )


def _shared_how(stream: Stream) -> dict[str, float]:
    """How the ranks share the model. Asked while the script trains: at its end it may have dropped both."""
    return {
        "wrapped:all": float(stream.joint is not None),
        "parted:all": float(stream.joint is not None and stream.joint.group is not None),
        "sharded:all": float(is_sharded(stream.parameters)),
    }


def _without_records(folders: Sequence[Path]) -> list[int]:
    """The ranks without a run file that can be seen from here; ``folders`` has one for each rank, in order."""
    return [rank for rank, one in enumerate(folders) if not os.path.isfile(one / RUN_FILE)]


def _expected(stream: Stream) -> list[int]:
    """The ranks that are known to train with the first one, so that each of them has to have a folder.

    Those of the wrapper's group; without a wrapper those of other machines, of which the first rank may see nothing.
    Other processes of a group may never make a step, as those that only collect data.
    """
    if stream.joint is not None:
        return list(ranks.ranks_of(stream.joint.group))
    local, world = os.environ.get("LOCAL_WORLD_SIZE", ""), ranks.world_size()
    return list(range(int(local), world)) if local.isdigit() else []
