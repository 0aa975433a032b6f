"""The folder that a process records in. Ranks that share none yet meet in the folder of the first one.

``torchrun`` tells each process its rank before it starts, so its ranks share a folder. Under ``srun``, ``mpirun`` or by
hand the script itself makes the process group, and each process has begun a run of its own by then. The first rank puts
its folder into the store of the process group, and the others find it there. No collective is called.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import torch

from steadytrain.capture.settings import Settings
from steadytrain.capture.step import ranks
from steadytrain.core.torch_private import DEFAULT_STORE
from steadytrain.storage.ranks_of_run import rank_folder
from steadytrain.storage.run_folder import RUN_FILE

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
    if settings.own_folder and _is_one_of_several():
        return (_join_first(settings, rank, tell), _nothing) if rank else (own, lambda: _announce(own))
    if rank:
        return rank_folder(own, rank), _nothing
    if (own / RUN_FILE).exists():
        return own / "ranks" / f"process-{os.getpid()}", _nothing
    return own, _nothing


def _is_one_of_several() -> bool:
    here = torch.distributed.is_available() and torch.distributed.is_initialized()
    return here and ranks.world_size() > 1


def _nothing() -> None: ...


def _announce(folder: Path) -> None:
    """The first rank records in ``folder``: tell the others."""
    key = _next_key()
    with contextlib.suppress(Exception):  # a group without such a store, or a store whose server has gone
        DEFAULT_STORE().set(key, os.fspath(folder))


def _join_first(settings: Settings, rank: int, tell: Callable[[str], None]) -> Path:
    """A folder in the run folder of the first rank, to which ``settings`` are moved.

    If that is not known in time, or cannot be seen from here, this rank stays a run of its own.
    """
    own, first = settings.run_dir, _announced(_next_key())
    if first is None or first == own or not os.path.isdir(first):
        return own
    settings.move_to(first)
    with contextlib.suppress(OSError):
        own.rmdir()
    folder = rank_folder(first, rank)
    tell(f"rank {rank} of {ranks.world_size()} belongs to the run of rank 0: its records go to {folder}")
    return folder


def _announced(key: str) -> Path | None:
    until = time.monotonic() + WAIT_S_MAX
    with contextlib.suppress(Exception):
        store = DEFAULT_STORE()
        while time.monotonic() < until:
            if store.check([key]):
                return Path(os.fsdecode(store.get(key)))
            time.sleep(POLL_S)
    return None


def _next_key() -> str:
    global _begun
    _begun += 1
    return f"steadytrain/run folder {_begun}"
