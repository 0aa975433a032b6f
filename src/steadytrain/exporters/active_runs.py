"""Finds a run of another tool that the script itself has begun. Imports none of them: what is not loaded is not active.

Called on the training thread every few dozen steps, so it only reads what lies there: a module's global, a
thread-local, the list of threads.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ActiveRun:
    """A run of the script's own.

    Args:
        tool: one of ``TOOLS``.
        identity: tells it from the next run of the same tool.
        handle: what the exporter of the tool needs to write into it (see there).
    """

    tool: str
    identity: str
    handle: Any


def active_runs() -> list[ActiveRun]:
    """The runs that are active now, at most one a tool."""
    found = []
    for look in (_wandb, _mlflow, _tensorboard):
        try:
            found += list(look())
        except Exception:  # another version of theirs: then there is nothing that we could know of
            continue
    return found


def _wandb() -> Iterator[ActiveRun]:
    """``handle`` is the ``wandb.Run``."""
    run = getattr(sys.modules.get("wandb"), "run", None)
    if run is not None and not run.disabled:
        yield ActiveRun("wandb", str(run.id), run)


def _mlflow() -> Iterator[ActiveRun]:
    """``handle`` is tracking URI and run id: MLflow's own notion of active belongs to one thread."""
    fluent, uri = sys.modules.get("mlflow.tracking.fluent"), sys.modules.get("mlflow.tracking")
    if fluent is None or uri is None:
        return
    run = fluent.active_run()
    if run is not None:
        yield ActiveRun("mlflow", str(run.info.run_id), (str(uri.get_tracking_uri()), str(run.info.run_id)))


def _tensorboard() -> Iterator[ActiveRun]:
    """``handle`` is the folder of an open writer. A writer is known by its thread; the oldest one is the main one."""
    for thread in threading.enumerate():
        if type(thread).__name__ != "_AsyncWriterThread" or not type(thread).__module__.startswith("tensorboard."):
            continue
        file = thread._record_writer._writer  # type: ignore[attr-defined]
        path = getattr(file, "filename", None) or getattr(file, "name", None)
        if path:
            folder = os.path.dirname(os.path.abspath(os.fsdecode(path)))
            yield ActiveRun("tensorboard", folder, folder)
            return
