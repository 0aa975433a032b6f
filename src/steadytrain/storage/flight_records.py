"""Reads what torch's flight recorder wrote: the collectives that each rank called, and how far each has come.

A record is the file of one rank: a pickled dictionary, as the watchdog writes it, its JSON, or the evidence and the
stall of a run. A pickle is read without building any class, so it cannot run code.
"""

from __future__ import annotations

import ast
import io
import json
import pickle
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steadytrain.core.bounded_files import read_bytes
from steadytrain.core.errors import UsageError
from steadytrain.storage.documents import as_json
from steadytrain.storage.run_folder import RUN_FILE

COLLECTIVES_FILE = "collectives.json"
EVIDENCE = Path("evidence") / "communication.json"
RECORD_BYTES_MAX = 256 << 20
RECORDS_MAX = 4_096
ENTRIES_KEPT = 512
"""Calls of a rank that a stalled run keeps, the newest ones: torch records 2,000 by default."""

RANK_OF_NAME = re.compile(r"(\d+)(?:\.(?:json|pickle|pkl))?$")
SEPARATOR = re.compile(r"[\\/]")
LIBRARY = re.compile(r"[\\/](?:site-packages|dist-packages|torch[\\/]distributed)[\\/]|^<frozen|steadytrain[\\/]")


@dataclass(frozen=True)
class Call:
    """One call of a collective, a send or a receive.

    ``seq`` is the group's own count of its collectives, 0 for a send or a receive; ``peer`` is the other rank of one of
    those as the group counts, None for a collective. ``line`` is the script's, such as ``train.py:17``.
    """

    operation: str
    seq: int
    peer: int | None
    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    state: str
    line: str
    created_ns: int

    @property
    def is_complete(self) -> bool:
        return self.state == "completed"


@dataclass(frozen=True)
class GroupRecord:
    """What one rank called in one process group. ``members`` are global ranks in the group's order, () if unknown;
    ``enqueued`` is the count of the newest collective that it called, 0 if unknown."""

    name: str
    members: tuple[int, ...]
    calls: tuple[Call, ...]
    enqueued: int


@dataclass(frozen=True)
class FlightRecord:
    """The record of one rank. ``evicted`` says that its first calls are no longer there."""

    rank: int
    groups: Mapping[str, GroupRecord]
    evicted: bool


def read_records(paths: Sequence[Path]) -> list[FlightRecord]:
    """The records in ``paths``: files, folders of such files, and runs; one for each rank, by rank.

    Raises:
        UsageError: no record is there, one cannot be read, or two claim the same rank.
    """
    files = list(dict.fromkeys(file for path in paths for file in _files(path)))
    if not files:
        raise UsageError(
            f"{', '.join(map(str, paths))}: no record of collectives; a run has some if it stalled or failed between "
            "ranks, and torch writes them where TORCH_FR_DUMP_TEMP_FILE or TORCH_NCCL_DEBUG_INFO_TEMP_FILE points"
        )
    if len(files) > RECORDS_MAX:
        raise UsageError(f"{len(files)} records of collectives: at most {RECORDS_MAX} are compared")
    records: dict[int, tuple[FlightRecord, Path]] = {}
    for file in files:
        record = read_record(file)
        if record.rank in records:
            raise UsageError(f"{file}: rank {record.rank} again, as in {records[record.rank][1]}; name one job's files")
        records[record.rank] = record, file
    return [records[rank][0] for rank in sorted(records)]


def read_record(file: Path) -> FlightRecord:
    """The record of one rank.

    Raises:
        UsageError: it cannot be read, or is none.
    """
    try:
        data = read_bytes(file, bytes_max=RECORD_BYTES_MAX)
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror or error}") from None
    document = _document(file, data)
    trace = document.get("flight_recorder", document)
    if not isinstance(trace, Mapping) or not isinstance(trace.get("entries"), Sequence):
        raise UsageError(f"{file}: not a record of collectives: it has no list of entries")
    rank = document.get("rank", trace.get("rank"))
    if not isinstance(rank, int) or isinstance(rank, bool):
        named = RANK_OF_NAME.search(file.name)
        if named is None:
            raise UsageError(f"{file}: of which rank? Its name must end in the rank, as torch writes it")
        rank = int(named[1])
    try:
        return FlightRecord(rank, _groups(trace), _evicted(trace))
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"{file}: not a record of collectives ({type(error).__name__}: {error})") from None


def write_record(folder: Path, rank: int, trace: Mapping[str, Any]) -> None:
    """Keep the newest calls of ``trace``, torch's own record, in the folder of a rank. Raises ``OSError``."""
    entries = list(trace["entries"])
    kept = {**trace, "rank": rank, "entries": entries[-ENTRIES_KEPT:]}
    (folder / COLLECTIVES_FILE).write_text(as_json(kept) + "\n", encoding="utf-8")


def plain_pickle(data: bytes) -> Any:
    """Containers, strings and numbers from a pickle.

    Raises ``pickle.UnpicklingError`` if it would build anything else, and what a damaged pickle raises.
    """
    return _Plain(io.BytesIO(data)).load()


class _Plain(pickle._Unpickler):
    """Builds no class and calls nothing. The one in C sets aside as much memory as a file of some bytes asks for."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it would build or run {module}.{name}")

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("it refers to another file")


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        if not path.exists():
            raise UsageError(f"{path}: no such file or folder")
        return [path]
    if (path / RUN_FILE).is_file():
        places = [path, *sorted((path / "ranks").glob("*"))]
        return [file for place in places for file in _of_rank(place)]
    return sorted(
        file for file in path.iterdir() if file.is_file() and RANK_OF_NAME.search(file.name) and file.suffix != ".html"
    )


def _of_rank(folder: Path) -> list[Path]:
    """The newest that a run has of one rank: what it kept when it stalled, else the evidence of its failure."""
    return next(([file] for one in (COLLECTIVES_FILE, EVIDENCE) if (file := folder / one).is_file()), [])


def _document(file: Path, data: bytes) -> Mapping[str, Any]:
    if not data.strip():
        raise UsageError(f"{file}: empty")
    try:
        found = json.loads(data) if data.lstrip()[:1] in (b"{", b"[") else plain_pickle(data)
    except pickle.UnpicklingError as error:
        raise UsageError(f"{file}: refused: {error}; only containers, text and numbers are read") from None
    except Exception as error:  # a damaged pickle can fail in any way
        why = f"{type(error).__name__}: {str(error)[:120]}"
        raise UsageError(f"{file}: not readable as JSON or as a pickle of the flight recorder ({why})") from None
    if not isinstance(found, Mapping):
        raise UsageError(f"{file}: not a record of collectives: a {type(found).__name__}")
    return found


def _evicted(trace: Mapping[str, Any]) -> bool:
    entries = trace["entries"]
    return bool(entries) and int(entries[0].get("record_id", 0)) > 0


def _groups(trace: Mapping[str, Any]) -> dict[str, GroupRecord]:
    configured = trace.get("pg_config") or {}
    status = trace.get("pg_status") or {}
    calls: dict[str, list[Call]] = {}
    ids: dict[str, str] = {}
    names: dict[str, str] = {}
    for entry in trace["entries"]:
        name, told = (str(part) for part in entry["process_group"])
        calls.setdefault(name, []).append(_call(entry))
        ids[name], names[name] = str(entry.get("pg_id", "")), told
    for name, config in configured.items():
        calls.setdefault(str(name), [])
        names.setdefault(str(name), str(config.get("desc", "")))
    return {
        name: GroupRecord(
            name=names[name] or name,
            members=_members(configured, name),
            calls=tuple(of_group),
            enqueued=_enqueued(status.get(ids.get(name, name)) or {}, of_group),
        )
        for name, of_group in calls.items()
    }


def _members(configured: Mapping[str, Any], name: str) -> tuple[int, ...]:
    # Gloo writes the default group under an empty name.
    config = configured.get(name) or (next(iter(configured.values())) if len(configured) == 1 else {})
    listed = config.get("ranks") or ()
    ranks = ast.literal_eval(listed) if isinstance(listed, str) else listed
    return tuple(int(rank) for rank in ranks)


def _enqueued(status: Mapping[str, Any], calls: Sequence[Call]) -> int:
    counted = max((call.seq for call in calls), default=0)
    return max(counted, int(status.get("last_enqueued_collective") or 0))


def _call(entry: Mapping[str, Any]) -> Call:
    operation, _, peers = str(entry["profiling_name"]).partition(":")[2].partition(" ")
    found = re.fullmatch(r"(\d+)(?:->|<-)(\d+)", peers)
    state = str(entry.get("state", ""))
    return Call(
        operation=operation,
        seq=0 if entry.get("is_p2p") else int(entry.get("collective_seq_id") or 0),
        peer=int(found[2]) if found is not None else None,
        inputs=_sizes(entry.get("input_sizes")),
        outputs=_sizes(entry.get("output_sizes")),
        dtypes=tuple(sorted({str(one) for one in entry.get("input_dtypes") or ()})),
        # Gloo leaves the state as it was and only says that it is done with the call.
        state="completed" if entry.get("retired") and state == "scheduled" else state,
        line=_line(entry.get("frames") or ()),
        created_ns=int(entry.get("time_created_ns") or 0),
    )


def _sizes(sizes: Any) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(int(one) for one in size) for size in sizes or ())


def _line(frames: Sequence[Mapping[str, Any]]) -> str:
    """The innermost frame of the script."""
    for frame in frames:
        file = str(frame.get("filename", ""))
        if file and not LIBRARY.search(file):
            return f"{SEPARATOR.split(file)[-1]}:{int(frame.get('line') or 0)}"
    return ""
