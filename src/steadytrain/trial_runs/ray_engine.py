"""Runs specs on a Ray cluster: one actor for each worker, with a pool of one process on its own machine.

Ray transports specs and outcomes. Each trial runs as it does locally (``pool.py``), with the same bounds. The machines
need the same Python environment and the same paths, because they read the incident and the script. An actor that is
lost is restarted, and its trial retried once.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from steadytrain.core.errors import UsageError
from steadytrain.core.extras import install
from steadytrain.core.work_time import work_time
from steadytrain.experiments.specs import NO_TIME_LEFT, Outcome, Spec
from steadytrain.replay.child_processes import about_to_launch

RESTARTS_MAX = 1
LOOK_S = 0.5


class RayEngine:
    """Actors on the cluster that ``ray.init`` finds (``RAY_ADDRESS``), or on a local one that it starts.

    Each actor is a ``worker``, constructed from ``source`` and ``moved``. Its ``run`` maps a spec to an outcome, both
    as
    JSON.

    Raises:
        UsageError: on construction, if Ray is not installed.
    """

    def __init__(self, worker: type, source: Path, moved: str, workers: int) -> None:
        if importlib.util.find_spec("ray") is None:
            raise UsageError(f"--engine ray needs Ray: {install('ray')}")
        about_to_launch()
        ray: Any = importlib.import_module("ray")
        self._ray = ray
        self._started = not ray.is_initialized()
        if self._started:
            ray.init(log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
        actor = ray.remote(max_restarts=RESTARTS_MAX, max_task_retries=RESTARTS_MAX, num_cpus=1)(worker)
        count = max(1, min(workers, int(ray.cluster_resources().get("CPU", 1))))
        self._idle = [actor.remote(str(source), moved) for _ in range(count)]

    def run(self, specs: Sequence[Spec], until: float | None) -> Iterator[Outcome]:
        """Yields each outcome when it is available. No trial starts after ``until`` (``work_time``)."""
        ray = self._ray
        waiting = list(specs)
        running: dict[Any, tuple[Any, Spec]] = {}
        while waiting or running:
            late = until is not None and work_time() > until
            while waiting and self._idle and not late:
                actor, spec = self._idle.pop(), waiting.pop(0)
                running[actor.run.remote(spec.to_json())] = actor, spec
            if late and waiting:
                for spec in waiting:
                    yield Outcome(spec, False, NO_TIME_LEFT)
                waiting = []
            done, _ = ray.wait(list(running), timeout=LOOK_S) if running else ([], [])
            for reference in done:
                actor, spec = running.pop(reference)
                self._idle.append(actor)
                try:
                    yield Outcome.from_json(ray.get(reference))
                except ray.exceptions.RayError as error:
                    text = str(error).strip().splitlines()
                    yield Outcome(spec, False, f"Ray lost it: {text[0] if text else type(error).__name__}")

    def close(self) -> None:
        for actor in self._idle:
            self._ray.kill(actor)
        self._idle = []
        if self._started:
            self._ray.shutdown()
