"""A local pool of fresh processes for trials, each bounded in time and memory and retried once if it was killed.

A server process has imported torch (``server.py``). Each worker holds at most one launched script that waits where
trials begin (``stage.py``), and sends it one spec after another. Finished outcomes are stored next to the incident and
read instead of run again. Torch-free: this side runs on the desk and never writes to the incident.

Pools of loky or ``multiprocessing`` do not fit: their workers are created once. Here each trial is a fork of a script
at a given step, with its own bounds, and is killed with everything that it started.
"""

from __future__ import annotations

import json
import os
import queue
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from steadytrain.capture.hooks.seeding import hash_variables
from steadytrain.core.errors import UsageError
from steadytrain.core.work_time import work_time
from steadytrain.experiments.outcome_files import Finished
from steadytrain.experiments.specs import NO_TIME_LEFT, Outcome, Spec
from steadytrain.replay.failing_step import check_launch
from steadytrain.replay.moved_files import NOT_MOVED, Moved, moved_environment
from steadytrain.replay.written_files import note_written
from steadytrain.storage.bundle import is_bundle, open_bundle
from steadytrain.storage.rank_group import rank_group
from steadytrain.storage.run_folder import open_run
from steadytrain.trial_runs.rank_worker import RankWorker
from steadytrain.trial_runs.server_process import ServerProcess
from steadytrain.trial_runs.socket_messages import Line
from steadytrain.trial_runs.worker import LOOK_S, Worker

Tell = Callable[[str], None]

TRIAL_S_MAX = 300.0
"""Time limit of one trial in seconds, from the moment when its process waits where trials begin."""

MEMORY_SHARE_MAX = 0.8
"""Share of the machine's memory for all trials that run at once."""

ENGINES = ("local", "ray", "slurm")
"""Where trials run: here, on a Ray cluster, in job steps of SLURM."""

WORKERS_MAX = 256


class Pool:
    """Runs specs of one incident. A context manager; its processes wait between two calls of :meth:`run`.

    Args:
        source: a bundle or a run folder.
        workers: the number of trials that run at once.
        moved: ``OLD=NEW`` if the script's files moved.
        engine: one of :data:`ENGINES`.
        trial_s_max: time limit of one trial in seconds.
        memory_bytes_max: memory limit of one trial; by default a share of the machine's memory.
        keep: store finished outcomes next to the incident, and read them from there.

    Raises:
        UsageError: on construction, if the script is gone or the engine is not available.
    """

    def __init__(
        self,
        source: Path,
        *,
        workers: int = 1,
        moved: str = NOT_MOVED,
        engine: str = "local",
        trial_s_max: float = TRIAL_S_MAX,
        memory_bytes_max: int | None = None,
        keep: bool = True,
    ) -> None:
        if not 1 <= workers <= WORKERS_MAX:
            raise UsageError(f"--workers {workers}: between 1 and {WORKERS_MAX}")
        if engine not in ENGINES:
            raise UsageError(f"--engine {engine!r}: {', '.join(ENGINES)}")
        self._source = source.absolute()
        recorded = open_bundle(source).environment if is_bundle(source) else open_run(source).description
        environment = moved_environment(recorded, Moved.parse(moved))
        check_launch(environment)
        self._finished = Finished(source, environment) if keep else None
        self._moved = moved
        self._tell: Tell = _nothing
        self._trial_s_max = trial_s_max
        self._memory_bytes_max = memory_bytes_max or _memory_share(workers)
        self._elsewhere: Any = None
        if engine == "ray":
            from steadytrain.trial_runs.ray_engine import RayEngine

            self._elsewhere = RayEngine(RemotePool, self._source, moved, workers)
        elif engine == "slurm":
            from steadytrain.trial_runs.slurm_engine import SlurmEngine

            self._elsewhere = SlurmEngine(self._source, moved, workers)
        self._scratch = tempfile.TemporaryDirectory(prefix="steadytrain-trials-")
        self._lock = threading.Lock()
        self._waiting: list[tuple[Spec, int]] = []
        group = rank_group(source)
        threads = group.launchers[group.rank] if group is not None else {}
        self._server = ServerProcess(self.scratch, {**hash_variables(environment), **_of_threads(threads)})
        self._told_full = False
        self._workers: list[Worker] = [Worker(self, number) for number in range(workers)]
        if group is not None:  # one trial at a time: it is as many processes as there are ranks
            self._workers = [RankWorker(self, group)]

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(
        self, specs: Sequence[Spec], *, budget_s: float | None = None, tell: Tell | None = None
    ) -> Iterator[Outcome]:
        """Yields each outcome when it is available: stored ones first, then in order of completion.

        After ``budget_s`` seconds of work (:mod:`steadytrain.core.work_time`) no trial starts, and one that runs is
        given up. ``tell`` gets one line for each.
        """
        self._tell = tell or _nothing
        until = None if budget_s is None else work_time() + budget_s
        wanted = list(dict.fromkeys(specs))
        todo = []
        for spec in wanted:
            kept = self._finished.read(spec) if self._finished is not None else None
            if kept is None:
                todo.append(spec)
            else:
                self._tell(f"{spec.trial}: finished earlier")
                yield kept
        if self._elsewhere is not None:
            for outcome in self._elsewhere.run(todo, until):
                self._keep(outcome)
                yield outcome
            return
        yield from self._run_here(todo, until)

    def warm_up(self) -> None:
        """Starts the server, which imports torch, before a trial asks for it. :meth:`close` may come in between."""
        with suppress(UsageError, ValueError, OSError):
            self._server.early_kinds()

    def close(self) -> None:
        """Ends every process. Idempotent."""
        for worker in self._workers:
            worker.close()
        self._server.close()
        if self._elsewhere is not None:
            self._elsewhere.close()
        note_written(self.scratch)
        self._scratch.cleanup()

    # -- for workers -----------------------------------------------------------------------------------------------

    def connect(
        self, key: str, spec: Spec, log: Path, *, source: Path | None = None, variables: Mapping[str, str] = {}
    ) -> Line:
        """A connection to a newly launched script on its way to the start of ``spec``; as one of several ranks with its
        own ``source`` and ``variables``."""
        return self._server.connect(
            {
                "source": str((source or self._source).absolute()),
                "moved": self._moved,
                "begin": spec.begin,
                "lead": spec.lead,
                "early": json.loads(key)[2],
                "log": str(log),
                "variables": dict(variables),
            }
        )

    def launch_key(self, spec: Spec) -> str:
        """Specs with equal keys can share one launch of the script."""
        return launch_key(spec, self._server.early_kinds())

    def next_spec(self, key: str | None, until: float | None) -> tuple[Spec, int] | None:
        """The next spec, preferably one for the script that the worker holds; None if there is none."""
        with self._lock:
            if not self._waiting:
                return None
            if until is not None and work_time() > until:
                return None
            fitting = (at for at, (spec, _) in enumerate(self._waiting) if self.launch_key(spec) == key)
            return self._waiting.pop(0 if key is None else next(fitting, 0))

    def tell(self, text: str) -> None:
        self._tell(text)

    def again(self, spec: Spec, tries: int) -> None:
        with self._lock:
            self._waiting.append((spec, tries))

    @property
    def scratch(self) -> Path:
        return Path(self._scratch.name)

    @property
    def trial_s_max(self) -> float:
        return self._trial_s_max

    @property
    def memory_bytes_max(self) -> int:
        return self._memory_bytes_max

    # -- internal --------------------------------------------------------------------------------------------------

    def _run_here(self, todo: Sequence[Spec], until: float | None) -> Iterator[Outcome]:
        with self._lock:
            self._waiting = [(spec, 0) for spec in todo]
        done: queue.Queue[Outcome | BaseException] = queue.Queue()
        stop = threading.Event()
        threads = []
        for worker in self._workers[: max(1, len(todo))] if todo else []:
            thread = threading.Thread(target=worker.work, args=(done, until, stop), daemon=True)
            thread.start()
            threads.append(thread)
        left = {spec.key: spec for spec in todo}
        try:
            while left and (any(thread.is_alive() for thread in threads) or not done.empty()):
                try:
                    outcome = done.get(timeout=LOOK_S)
                except queue.Empty:
                    continue
                if isinstance(outcome, BaseException):
                    raise outcome
                left.pop(outcome.spec.key, None)
                self._keep(outcome)
                self._tell(_said(outcome))
                yield outcome
        finally:
            stop.set()
            with self._lock:
                self._waiting = []
            for thread in threads:
                thread.join(LOOK_S * 10)
        for spec in left.values():
            yield Outcome(spec, False, NO_TIME_LEFT)

    def _keep(self, outcome: Outcome) -> None:
        """Stores only results of the trial itself."""
        if self._finished is None or not outcome.lasts:
            return
        try:
            self._finished.write(outcome)
        except OSError as error:
            if not self._told_full:
                self._told_full = True
                self._tell(f"finished trials cannot be stored: {error.strerror or error}")


class RemotePool:
    """The remote side on a cluster: a pool of one process."""

    def __init__(self, source: str, moved: str) -> None:
        self._pool = Pool(Path(source), workers=1, moved=moved, keep=False)

    def run(self, spec: dict[str, Any]) -> dict[str, Any]:
        (outcome,) = self._pool.run([Spec.from_json(spec)])
        return outcome.to_json()

    def close(self) -> None:
        self._pool.close()


def launch_key(spec: Spec, early_kinds: Collection[str]) -> str:
    """The launch that a spec needs: changes of ``early_kinds`` act in it before the script builds its model."""
    early = [change.to_json() for change in spec.changes if change.kind in early_kinds]
    return json.dumps([spec.begin or None, spec.lead, early], sort_keys=True)


def _said(outcome: Outcome) -> str:
    name = outcome.spec.trial
    return f"{name}: {outcome.seconds:.1f} s" if outcome.ran else f"{name}: not run ({outcome.why_not})"


def _memory_share(workers: int) -> int:
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        total = 8 << 30
    return int(total * MEMORY_SHARE_MAX / workers)


def _of_threads(launcher: Mapping[str, str]) -> dict[str, str]:
    """The variable that sets the number of threads: the server imports torch, which reads it, before a rank starts."""
    return {name: value for name, value in launcher.items() if name == "OMP_NUM_THREADS"}


def _nothing(text: str) -> None:
    """The default ``tell``: prints nothing."""
