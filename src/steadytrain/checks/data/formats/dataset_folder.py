"""A folder that ``Dataset.save_to_disk`` of Hugging Face's datasets wrote, in the order that it says.

Read by pyarrow alone. For a ``DatasetDict`` it reads the split ``train``, or the first; name a split's folder to read
another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, final

from steadytrain.checks.data.arrow_rows import ROWS_AT_ONCE, pyarrow_for, reading, rows_of, rows_of_file
from steadytrain.checks.data.data_check import DataFormat, Options, Row, Tell
from steadytrain.core.bounded_files import DOCUMENT_BYTES_MAX, read_json
from steadytrain.core.errors import UsageError

_STATE, _SPLITS = "state.json", "dataset_dict.json"


@final
class DatasetFolder(DataFormat):
    """A folder of ``Dataset.save_to_disk`` or ``DatasetDict.save_to_disk``, in the order of its index."""

    kind = "dataset-on-disk"
    suffixes: ClassVar[tuple[str, ...]] = ()
    whole_folder: ClassVar[bool] = True

    def claims(self, path: Path, head: bytes) -> bool:
        return path.is_dir() and ((path / _SPLITS).is_file() or _is_state(path / _STATE))

    def notes(self, path: Path) -> tuple[str, ...]:
        if not (path / _SPLITS).is_file():
            return ()
        splits = _splits(path)
        return (f"Of the splits {', '.join(splits)}, {_chosen(splits)} is looked at.",)

    def rows(self, path: Path, options: Options, tell: Tell) -> Iterator[list[Row]]:
        if (path / _SPLITS).is_file():
            path = path / _chosen(_splits(path))
        pyarrow_for(path)
        state = _document(path / _STATE)
        files = [path / str(entry["filename"]) for entry in state.get("_data_files") or ()]
        indices = [path / str(entry["filename"]) for entry in state.get("_indices_files") or ()]
        if not files:
            raise UsageError(f"{path}: its state.json names no data files; save the dataset again")
        if indices:
            yield from _by_indices(files, indices, tell)
            return
        first = 0
        for file in files:
            count = 0
            for rows in rows_of_file(file, tell):
                yield [Row(first + row.number, row.place, row.fields) for row in rows]
                count += len(rows)
            first += count


def _by_indices(files: Sequence[Path], indices: Sequence[Path], tell: Tell) -> Iterator[list[Row]]:
    """Yield rows in the order of an index, from memory-mapped files: a shuffled or filtered dataset."""
    import pyarrow

    with reading(files[0].parent, "as Arrow"):
        table = pyarrow.concat_tables([_mapped(file) for file in files])
        table.validate(full=True)
        order = pyarrow.concat_tables([_mapped(file) for file in indices]).column(0)
        for begin in range(0, len(order), ROWS_AT_ONCE):
            chosen = order.slice(begin, ROWS_AT_ONCE)
            for batch in table.take(chosen).combine_chunks().to_batches():
                yield rows_of(batch, begin, files[0].parent.name)
            tell(files[0].parent.name, begin + len(chosen), len(order))


def _mapped(file: Path) -> Any:
    import pyarrow

    return pyarrow.ipc.open_stream(pyarrow.memory_map(str(file))).read_all()


def _is_state(path: Path) -> bool:
    return path.is_file() and "_data_files" in _document(path)


def _document(path: Path) -> dict[str, Any]:
    try:
        read = read_json(path, bytes_max=DOCUMENT_BYTES_MAX)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read ({error})") from None
    return read if isinstance(read, dict) else {}


def _splits(path: Path) -> list[str]:
    splits = [str(name) for name in _document(path / _SPLITS).get("splits") or ()]
    if not splits:
        raise UsageError(f"{path / _SPLITS}: names no splits; save the dataset again")
    return splits


def _chosen(splits: Sequence[str]) -> str:
    return "train" if "train" in splits else splits[0]
