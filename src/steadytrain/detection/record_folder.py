"""The folder that a process records in. Ranks that share none yet meet in the folder of the first one.

``torchrun`` tells each process its rank before it starts, so its ranks share a folder. Under ``srun``, ``mpirun`` or by
hand the script itself makes the process group, and each process has begun a run of its own by then. The first rank puts
its folder into the store of the process group, and the others find it there. No collective is called.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from steadytrain.capture.settings import Settings
from steadytrain.capture.step import ranks
from steadytrain.core.errors import UsageError
from steadytrain.core.own_errors import unless_it_fails
from steadytrain.core.torch_private import DEFAULT_STORE
from steadytrain.storage.ranks_of_run import launcher_facts, rank_folder
from steadytrain.storage.run_folder import RUN_FILE, Run, open_run

WAIT_S_MAX = 3.0
"""Ranks that train together come to their first step within milliseconds of each other."""

POLL_S = 0.01

_begun = 0
"""Runs of this process whose ranks have met or tried to: each has a key of its own in the store."""


def choose_folder(settings: Settings, tell: Callable[[str], None]) -> tuple[Path, Callable[[], None]]:
    """The folder for the records of this process, and what to call once its ``run.json`` is there.

    It is the run folder for the first process that trains, and a folder under ``ranks`` for the others.
    """
    rank, own = ranks.rank(), settings.run_dir
    may_meet = not settings.shares_folder and _is_one_of_several()
    if rank:
        return (_join_first(settings, rank, tell) if may_meet else rank_folder(own, rank)), _nothing
    if (own / RUN_FILE).exists():
        return own / "ranks" / f"process-{os.getpid()}", _nothing
    return own, (lambda: _announce(own)) if may_meet else _nothing


def rank_facts() -> dict[str, Any]:
    """Which process of the training this is, and where it runs."""
    return {
        "rank": ranks.rank(),
        "world_size": ranks.world_size(),
        "pid": os.getpid(),
        "node": platform.node(),
        **launcher_facts(),
    }


def _is_one_of_several() -> bool:
    here = torch.distributed.is_available() and torch.distributed.is_initialized()
    return here and ranks.world_size() > 1


def _nothing() -> None: ...


def _announce(folder: Path) -> None:
    """The first rank records in ``folder``: tell the others."""
    key = _next_key()
    with contextlib.suppress(Exception):  # a group without such a store, or a store whose server has gone
        DEFAULT_STORE().set(key, json.dumps({"folder": os.fspath(folder), **_mark(open_run(folder))}))


def _join_first(settings: Settings, rank: int, tell: Callable[[str], None]) -> Path:
    """A folder in the run folder of the first rank, to which ``settings`` are moved.

    If that is not known in time, or cannot be seen from here, this rank stays where it is: in a run of its own, or in
    that of the process that started it.
    """
    own, announced = settings.run_dir, _announced(_next_key())
    first = Path(announced["folder"]) if announced is not None else own
    if announced is None or first == own or not _is_the_run(first, announced):
        return own if settings.made_folder else rank_folder(own, rank)
    settings.move_to(first)
    with unless_it_fails(OSError):
        own.rmdir()
    folder = rank_folder(first, rank)
    tell(f"rank {rank} of {ranks.world_size()} belongs to the run of rank 0: its records go to {folder}")
    return folder


def _is_the_run(folder: Path, announced: Mapping[str, Any]) -> bool:
    """Whether the run in ``folder`` is the one that the first rank announced: another node may have a folder of that
    name, and another watch of this process may have ended."""
    try:
        run = open_run(folder)
    except UsageError:
        return False
    return run.ended is None and all(announced.get(name) == value for name, value in _mark(run).items())


def _mark(run: Run) -> dict[str, Any]:
    return {name: run.description.get(name) for name in ("rank", "pid", "started", "process", "process_start")}


def _announced(key: str) -> dict[str, Any] | None:
    until = time.monotonic() + WAIT_S_MAX
    with contextlib.suppress(Exception):
        store = DEFAULT_STORE()
        while time.monotonic() < until:
            if store.check([key]):
                found = json.loads(store.get(key))
                return found if isinstance(found, dict) and isinstance(found.get("folder"), str) else None
            time.sleep(POLL_S)
    return None


def _next_key() -> str:
    global _begun
    _begun += 1
    return f"steadytrain/run folder {_begun}"
