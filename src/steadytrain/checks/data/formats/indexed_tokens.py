"""Megatron's pairs of files: tokens in ``NAME.bin``, the start of each sequence in ``NAME.idx``; one sequence per
row."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np

from steadytrain.checks.data.data_check import DataFormat, Options, Row, Tell
from steadytrain.checks.data.number_files import NumberFile
from steadytrain.checks.data.token_index import has_index
from steadytrain.core.bounded_files import open_regular
from steadytrain.core.errors import UsageError

ROWS_AT_ONCE = 1024
_HEADER = struct.Struct("<9sQBQQ")
_DTYPES = {1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 8: "uint16"}


@final
class IndexedTokens(DataFormat):
    """Megatron's pairs of ``.bin`` and ``.idx``, one sequence per row."""

    kind = "indexed-tokens"
    suffixes: ClassVar[tuple[str, ...]] = (".bin",)

    def claims(self, path: Path, head: bytes) -> bool:
        return path.suffix == ".bin" and has_index(path)

    def rows(self, path: Path, options: Options, tell: Tell) -> Iterator[list[Row]]:
        try:
            lengths, pointers, dtype = _index(path.with_suffix(".idx"))
            tokens = NumberFile(path, dtype, (path.stat().st_size // dtype.itemsize,))
        except (OSError, ValueError, struct.error) as error:
            raise UsageError(f"{path}: its index cannot be read ({error}); make both files again") from None
        width = dtype.itemsize
        for begin in range(0, len(lengths), ROWS_AT_ONCE):
            places = range(begin, min(begin + ROWS_AT_ONCE, len(lengths)))
            begins = pointers.rows(begin, begin + ROWS_AT_ONCE) // width
            counts = lengths.rows(begin, begin + ROWS_AT_ONCE)
            yield [_row(path, *row, tokens) for row in zip(places, begins.tolist(), counts.tolist(), strict=True)]
            tell(path.name, places[-1] + 1, len(lengths))


def _row(path: Path, place: int, begin: int, length: int, tokens: NumberFile) -> Row:
    where = f"{path.name}[{place}]"
    if begin < 0 or length < 0 or begin + length > len(tokens):
        return Row(place, where, None, "the index points beyond the end of the tokens")
    return Row(place, where, {"input_ids": tokens.rows(begin, begin + length).astype(np.int64)})


def _index(path: Path) -> tuple[NumberFile, NumberFile, np.dtype[Any]]:
    with open_regular(path) as file:
        _, version, code, sequences, _ = _HEADER.unpack(file.read(_HEADER.size))
        if version != 1 or code not in _DTYPES:
            raise ValueError(f"version {version}, numbers of kind {code}")
    lengths = NumberFile(path, np.dtype("<i4"), (sequences,), offset=_HEADER.size)
    pointers = NumberFile(path, np.dtype("<i8"), (sequences,), offset=_HEADER.size + 4 * sequences)
    return lengths, pointers, np.dtype(_DTYPES[code])
