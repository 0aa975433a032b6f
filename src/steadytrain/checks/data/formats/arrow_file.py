"""Arrow files: the stream that Hugging Face's datasets write, and the file format (Feather)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, final

from steadytrain.checks.data.arrow_rows import pyarrow_for, rows_of
from steadytrain.checks.data.data_check import DataFormat, Options, Row, Tell
from steadytrain.core.errors import UsageError

ROWS_AT_ONCE = 1024
_FILE = b"ARROW1"
_STREAM = b"\xff\xff\xff\xff"


@final
class ArrowFile(DataFormat):
    kind = "arrow"
    suffixes: ClassVar[tuple[str, ...]] = (".arrow", ".feather")

    def claims(self, path: Path, head: bytes) -> bool:
        return head.startswith(_FILE) or (head.startswith(_STREAM) and path.suffix == ".arrow")

    def rows(self, path: Path, options: Options, tell: Tell) -> Iterator[list[Row]]:
        pyarrow_for(path)
        import pyarrow

        number, size = 0, path.stat().st_size
        try:
            with pyarrow.memory_map(str(path)) as mapped:
                for batch in _batches(mapped):
                    for begin in range(0, batch.num_rows, ROWS_AT_ONCE):
                        part = batch.slice(begin, ROWS_AT_ONCE)
                        yield rows_of(part, number, path.name)
                        number += part.num_rows
                    tell(path.name, min(mapped.tell(), size), size)
        except (pyarrow.ArrowException, OSError) as error:
            raise UsageError(f"{path}: cannot be read as Arrow ({str(error).splitlines()[0][:160]})") from None


def _batches(mapped: pyarrow.MemoryMappedFile) -> Iterator[pyarrow.RecordBatch]:  # type: ignore[name-defined] # noqa: F821
    import pyarrow

    begins = mapped.read(len(_FILE))
    mapped.seek(0)
    if begins == _FILE:
        reader = pyarrow.ipc.open_file(mapped)
        for place in range(reader.num_record_batches):
            yield reader.get_batch(place)
        return
    yield from pyarrow.ipc.open_stream(mapped)
