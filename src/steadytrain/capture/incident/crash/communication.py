"""Evidence of failed communication between ranks: the backend's errors, and torch's flight recorder of collectives.

This reads the recorder of this process (NCCL, and Gloo in newer versions; older ones record if ``TORCH_FR_BUFFER_SIZE``
or ``TORCH_NCCL_TRACE_BUFFER_SIZE`` is set). The files that a watchdog dumps are listed with size and hash, and stay in
place: `steadytrain collectives` reads them.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from steadytrain.capture.incident.crash.errors import chain, error_facts
from steadytrain.core.own_errors import own
from steadytrain.core.torch_private import FLIGHT_RECORDER, NCCL_RECORDER
from steadytrain.storage.bundle import sha256_of
from steadytrain.storage.flight_records import plain_pickle
from steadytrain.storage.redaction import redact_environment

ENTRIES_MAX = 1_000
"""Collectives kept, the newest ones."""

RECORDER_BYTES_MAX = 64 << 20
DUMPS_MAX = 64
HASHED_BYTES_MAX = 256 << 20
NOT_COPIED = "a pickle, which can run code where it is opened: not copied; `steadytrain collectives` reads it safely"

_DUMP_VARIABLES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_DUMP_DEFAULTS = ("/tmp/nccl_trace_rank_", "~/.cache/torch/comm_lib_trace_rank_")
_SAYS_SO = re.compile(r"\bNCCL\b|\bnccl[A-Z]\w+|ProcessGroup(NCCL|Gloo)|Watchdog caught collective|/gloo/")


def communication_document(error: BaseException, *, since: float) -> dict[str, Any] | None:
    """The evidence of a failure between ranks; None if ``error`` is none and there are no dumps.

    Args:
        since: in seconds since the epoch; older dumps belong to another run.
    """
    errors = [one for one in chain(error) if _is_of_communication(one)]
    dumps = _dumps(_dump_prefixes(os.environ, failed=bool(errors)), since)
    if not errors and not dumps:
        return None
    return {
        "errors": [error_facts(one) for one in errors],
        "flight_recorder": flight_recorder(),
        "dumps": dumps,
        "environment": {
            name: value
            for name, value in redact_environment(os.environ).items()
            if name.startswith(("NCCL_", "TORCH_NCCL_", "TORCH_FR_", "GLOO_", "RANK", "WORLD_SIZE", "LOCAL_RANK"))
        },
    }


def flight_recorder() -> dict[str, Any] | None:
    """The collectives that torch has recorded in this process; None if it does not record."""
    if not torch.distributed.is_available():
        return None
    for name in (NCCL_RECORDER, FLIGHT_RECORDER):
        dump = name.loaded()
        data = dump() if dump is not None else b""
        if not data or len(data) > RECORDER_BYTES_MAX:
            continue
        trace = plain_pickle(data)
        entries = trace.get("entries") or []
        if entries:
            return {**trace, "entries": entries[-ENTRIES_MAX:], "entries_left_out": max(0, len(entries) - ENTRIES_MAX)}
    return None


def _is_of_communication(error: BaseException) -> bool:
    kinds = tuple(
        kind
        for name in ("DistError", "DistBackendError", "DistNetworkError", "DistStoreError")
        if isinstance(kind := getattr(torch.distributed, name, None), type)
    )
    return isinstance(error, kinds) or (isinstance(error, RuntimeError) and _SAYS_SO.search(str(error)) is not None)


def _dump_prefixes(environment: Mapping[str, str], *, failed: bool) -> list[str]:
    """The path prefixes of dumps. Dumps at the default path may belong to others: they count only after a failure."""
    named = [environment[name] for name in _DUMP_VARIABLES if environment.get(name)]
    return named or (list(_DUMP_DEFAULTS) if failed else [])


def _dumps(prefixes: list[str], since: float) -> list[dict[str, Any]]:
    """The recorder's files of this run, from every rank on this host."""
    found: dict[Path, dict[str, Any]] = {}
    for prefix in prefixes:
        start = Path(prefix).expanduser()
        candidates = sorted(start.parent.glob(f"{glob.escape(start.name)}*")) if start.parent.is_dir() else []
        for path in candidates:
            if len(found) >= DUMPS_MAX:
                break
            facts = _dump_facts(path, since) if path.name[len(start.name) :].isdigit() else None
            if facts is not None:
                found[path] = facts
    return list(found.values())


def _dump_facts(path: Path, since: float) -> dict[str, Any] | None:
    try:
        status = path.stat()
        if status.st_mtime < since:
            return None
        digest = sha256_of(path) if status.st_size <= HASHED_BYTES_MAX else None
    except own(OSError):
        return None
    return {"path": str(path), "bytes": status.st_size, "sha256": digest, "note": NOT_COPIED}
