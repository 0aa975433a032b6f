"""Megatron's pairs of files: tokens in ``NAME.bin``, the start of each sequence in ``NAME.idx``; one sequence per
row."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np

from steadytrain.checks.data.data_check import DataFormat, Options, Row, Tell
from steadytrain.checks.data.token_index import has_index
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
            tokens = np.memmap(path, dtype, mode="r")
        except (OSError, ValueError, struct.error) as error:
            raise UsageError(f"{path}: its index cannot be read ({error}); make both files again") from None
        width = dtype.itemsize
        for begin in range(0, len(lengths), ROWS_AT_ONCE):
            places = range(begin, min(begin + ROWS_AT_ONCE, len(lengths)))
            yield [_row(path, place, tokens, int(pointers[place]) // width, int(lengths[place])) for place in places]
            tell(path.name, places[-1] + 1, len(lengths))


def _row(path: Path, place: int, tokens: np.ndarray[Any, Any], begin: int, length: int) -> Row:
    where = f"{path.name}[{place}]"
    if begin + length > len(tokens):
        return Row(place, where, None, "the index points beyond the end of the tokens")
    return Row(place, where, {"input_ids": np.array(tokens[begin : begin + length], np.int64)})


def _index(path: Path) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.dtype[Any]]:
    with path.open("rb") as file:
        _, version, code, sequences, _ = _HEADER.unpack(file.read(_HEADER.size))
        if version != 1 or code not in _DTYPES:
            raise ValueError(f"version {version}, numbers of kind {code}")
        lengths = np.memmap(path, "<i4", mode="r", offset=_HEADER.size, shape=(sequences,))
        pointers = np.memmap(path, "<i8", mode="r", offset=_HEADER.size + 4 * sequences, shape=(sequences,))
    return lengths, pointers, np.dtype(_DTYPES[code])
