"""Open what the user names as rows: a file, a folder of shards, or a Python object in a module."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from steadytrain.checks.data.bytes_of import head_of
from steadytrain.checks.data.data_check import DATA_FORMATS, DataFormat, Options, Row, Tell
from steadytrain.core.errors import UsageError

FILES_MAX = 100_000
DEPTH_MAX = 6
ROWS_AT_ONCE = 256
ENDLESS_ROWS_MAX = 100_000
"""Rows that are read from an iterable without a length, if the user sets no limit: it may be endless."""


@dataclass(frozen=True)
class Wanted:
    """The data to check: a path or ``module:name``, at most ``limit`` rows, and the fields that the user named."""

    what: str
    limit: int | None = None
    text: str | None = None
    labels: str | None = None
    options: Options = field(default_factory=Options)


@dataclass(frozen=True)
class Source:
    """Rows in parts, numbered over all files. ``rows`` can be called once or, for files, repeatedly.

    ``reads_dtype`` says whether the number type that the user names is of use.
    """

    name: str
    kind: str
    files: tuple[Path, ...]
    size_bytes: int
    notes: tuple[str, ...]
    rows: Callable[[Tell], Iterator[list[Row]]]
    reads_dtype: bool = False


def open_source(wanted: Wanted) -> Source:
    """Open the data that ``wanted`` names.

    Raises:
        UsageError: it does not exist, or has no known format.
    """
    path = Path(wanted.what).expanduser()
    if path.exists():
        return _of_path(path, wanted)
    module, colon, name = wanted.what.partition(":")
    if colon and name and all(part.isidentifier() for part in module.split(".")):
        return of_object(_object(module, name), name=wanted.what, limit=wanted.limit)
    raise UsageError(f"{wanted.what}: no such file or folder, and not of the form module:dataset")


def of_object(given: Any, *, name: str, limit: int | None = None) -> Source:
    """The rows of any iterable, or of any indexed collection with a length (a torch dataset).

    Raises:
        UsageError: it is neither.
    """
    if isinstance(given, (str, bytes)):
        raise UsageError(f"{name}: a {type(given).__name__}, and no data set")
    if isinstance(given, Mapping):
        if "train" not in given:
            raise UsageError(f"{name}: a mapping of {', '.join(map(str, [*given][:6])) or 'nothing'}; name one of them")
        given = given["train"]
    length = _length(given)
    by_place = hasattr(given, "__getitem__") and length is not None
    if not by_place and not hasattr(given, "__iter__"):
        raise UsageError(f"{name}: a {type(given).__name__}, which is no iterable and has no places to ask for")
    endless = length is None and limit is None
    notes = (f"It has no length: at most {ENDLESS_ROWS_MAX:,} rows are looked at (--limit).",) if endless else ()
    most = limit if limit is not None else length if length is not None else ENDLESS_ROWS_MAX

    def entries() -> Iterator[Any]:
        if by_place:
            assert length is not None
            for place in range(min(most, length)):
                yield _given(given, place)
            return
        walking = iter(given)
        for _ in range(most):
            try:
                entry = next(walking)
            except StopIteration:
                return
            except Exception as error:  # the iterable's own code failed, so it cannot continue
                yield _Raised(f"{type(error).__name__}: {str(error)[:120]}; no rows after it")
                return
            yield entry

    def rows(tell: Tell) -> Iterator[list[Row]]:
        held: list[Row] = []
        given_rows = (row for batch in entries() for row in _unbatched(batch)) if _is_loader(given) else entries()
        for number, entry in enumerate(given_rows):
            held.append(_row(number, entry, name))
            if len(held) == ROWS_AT_ONCE:
                yield held
                tell(name, number + 1, min(most, length) if length is not None else 0)
                held = []
        if held:
            yield held

    return Source(name, type(given).__name__, (), 0, notes, rows)


@dataclass(frozen=True)
class _Raised:
    """A row for which the dataset raised an error."""

    why: str


def _given(data: Any, place: int) -> Any:
    try:
        return data[place]
    except Exception as error:  # the dataset's own code: one bad row must not hide the others
        return _Raised(f"{type(error).__name__}: {str(error)[:120]}")


def _is_loader(given: Any) -> bool:
    """Whether it yields batches: it has a data set, and a batch size or a batch sampler."""
    sizes = (getattr(given, "batch_size", None), getattr(given, "batch_sampler", None))
    return hasattr(given, "dataset") and any(size is not None for size in sizes)


def _unbatched(batch: Any) -> Iterator[Any]:
    """Yield the rows of a batch, if all its values have the same length. Anything else is one row."""
    if isinstance(batch, _Raised):
        yield batch
        return
    fields = fields_of(batch)
    counts = {len(value) for value in fields.values() if hasattr(value, "__len__") and not isinstance(value, str)}
    if len(counts) != 1:
        yield batch
        return
    for place in range(counts.pop()):
        row = {name: value[place] for name, value in fields.items() if hasattr(value, "__len__")}
        yield tuple(row.values()) if isinstance(batch, (tuple, list)) else row


def _row(number: int, entry: Any, name: str) -> Row:
    place = f"{name}[{number}]"
    if isinstance(entry, _Raised):
        return Row(number, place, None, entry.why)
    return Row(number, place, fields_of(entry))


def fields_of(entry: Any) -> dict[str, Any]:
    """An entry of a dataset as named fields, with tensors as arrays. Fields of a tuple are named by position."""
    if isinstance(entry, str):
        return {"text": entry}
    if isinstance(entry, Mapping):
        return {str(name): _plain(value) for name, value in entry.items()}
    if hasattr(entry, "_asdict"):
        return {str(name): _plain(value) for name, value in entry._asdict().items()}
    if isinstance(entry, (tuple, list)) and not (entry and isinstance(entry[0], (int, float))):
        return _of_places([_plain(value) for value in entry])
    value = _plain(entry)
    whole = isinstance(value, list) or (isinstance(value, np.ndarray) and value.dtype.kind in "iu")
    return {"input_ids" if whole else "value": value}


def _of_places(values: Sequence[Any]) -> dict[str, Any]:
    """Usual names for ``(tokens, labels)`` and ``(features, class)`` if the values look like them."""
    names = [str(place) for place in range(len(values))]
    if len(values) == 2:
        first, second = values
        rows = isinstance(first, np.ndarray) and first.ndim == 1 and first.dtype.kind in "iu" and len(first) > 1
        if rows:
            names = ["input_ids", "labels" if isinstance(second, np.ndarray) and second.ndim == 1 else "label"]
        elif isinstance(second, (int, np.integer)):
            names = ["text" if isinstance(first, str) else "features", "label"]
        elif isinstance(first, str) and isinstance(second, str):
            names = ["prompt", "completion"]
        else:
            names = ["features", "targets"]
    return dict(zip(names, values, strict=True))


def _plain(value: Any) -> Any:
    """A tensor of any library as an array. An array with one element becomes a number."""
    if hasattr(value, "detach") and hasattr(value, "cpu"):
        value = value.detach().cpu()
        try:
            value = value.numpy()
        except TypeError:  # NumPy has no bfloat16
            value = value.float().numpy()
    if isinstance(value, (np.ndarray, np.generic)) and value.ndim == 0:
        return value.item()
    return value


def _length(given: Any) -> int | None:
    try:
        return len(given)
    except Exception:  # a user's __len__ may raise anything
        return None


def _object(module_name: str, name: str) -> Any:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # the module is the user's own code
        raise UsageError(f"{module_name}: cannot be imported ({type(error).__name__}: {error})") from None
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            there = ", ".join(sorted(entry for entry in vars(module) if not entry.startswith("_"))[:12])
            raise UsageError(f"{module_name} has no {part!r}; it has {there}")
        found = getattr(found, part)
    is_data = hasattr(found, "__iter__") or hasattr(found, "__getitem__")
    if isinstance(found, type) or (callable(found) and not is_data):
        try:
            return found()
        except Exception as error:  # the user's own code
            raise UsageError(f"{module_name}:{name}() failed ({type(error).__name__}: {error})") from None
    return found


# Files.


@lru_cache(maxsize=1)
def formats() -> tuple[DataFormat, ...]:
    """Every format: the shipped ones, then those of other packages."""
    return tuple(cls() for cls in DATA_FORMATS.classes())


def _of_path(path: Path, wanted: Wanted) -> Source:
    reading, files = _claimed(path)
    notes = list(dict.fromkeys(note for file in files for note in reading.notes(file)))[:4]

    def rows(tell: Tell) -> Iterator[list[Row]]:
        first, limit = 0, wanted.limit
        for file in files:
            count = 0
            for block in reading.rows(file, wanted.options, tell):
                numbered = block if not first else [_moved(row, first) for row in block]
                if limit is not None and first + count + len(block) >= limit:
                    yield numbered[: limit - first - count]
                    return
                yield numbered
                count += len(block)
            first += count

    size = sum(file.stat().st_size for path_ in files for file in _all_files(path_))
    typed = any(reading.reads_dtype(file) for file in files)
    return Source(str(path), reading.kind, tuple(files), size, tuple(notes), rows, typed)


def _moved(row: Row, first: int) -> Row:
    return Row(row.number + first, row.place, row.fields, row.broken, row.odd_bytes)


def _claimed(path: Path) -> tuple[DataFormat, list[Path]]:
    if path.is_dir():
        whole = next((entry for entry in formats() if entry.whole_folder and entry.claims(path, b"")), None)
        if whole is not None:
            return whole, [path]
        return _shards(path)
    head = head_of(path)
    reading = _format_of(path, head)
    if reading is None:
        if not head:
            raise UsageError(f"{path}: the file is empty")
        kinds = ", ".join(entry.kind for entry in formats())
        raise UsageError(f"{path}: of no known format; read are {kinds}")
    return reading, [path]


def _format_of(path: Path, head: bytes) -> DataFormat | None:
    """The format of a file. A match by file name takes precedence over one by content."""
    claiming = [entry for entry in formats() if not entry.whole_folder and entry.claims(path, head)]
    named = [entry for entry in claiming if path.name.lower().endswith(entry.suffixes)]
    return next(iter((*named, *claiming)), None)


def _shards(folder: Path) -> tuple[DataFormat, list[Path]]:
    """All files below ``folder``, sorted by name, in the format that most of them have."""
    by_kind: dict[str, list[Path]] = {}
    readings: dict[str, DataFormat] = {}
    suffixes = tuple(suffix for entry in formats() for suffix in entry.suffixes)
    for file in _all_files(folder):
        if not file.name.lower().endswith(suffixes):
            continue
        reading = _format_of(file, head_of(file))
        if reading is not None:
            readings[reading.kind] = reading
            by_kind.setdefault(reading.kind, []).append(file)
    if not by_kind:
        raise UsageError(f"{folder}: no data in this folder; looked for {', '.join(sorted(set(suffixes)))}")
    kind = max(by_kind, key=lambda name: sum(file.stat().st_size for file in by_kind[name]))
    return readings[kind], sorted(by_kind[kind])


def _all_files(path: Path) -> Iterable[Path]:
    if not path.is_dir():
        yield path
        return
    base = len(path.parts)
    for place, (folder, folders, names) in enumerate(os.walk(path)):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if len(Path(folder).parts) - base >= DEPTH_MAX or place >= FILES_MAX:
            folders[:] = []
        for name in sorted(names)[:FILES_MAX]:
            if not name.startswith("."):
                yield Path(folder) / name
