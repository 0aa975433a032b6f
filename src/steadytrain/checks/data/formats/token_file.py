"""Tokens in one long file: raw ``.bin`` with or without a short header, and ``.npy``.

A row is ``--length`` tokens, as a loader would cut them. A two-dimensional ``.npy`` has its own rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np

from steadytrain.checks.data.data_check import DataFormat, Options, Row, Tell
from steadytrain.checks.data.number_files import NumberFile, of_npy
from steadytrain.checks.data.token_index import has_index
from steadytrain.core.bounded_files import open_regular
from steadytrain.core.errors import UsageError

LENGTH = 1024
"""Tokens per row if the user names no length. Any number would do; this is a usual context length."""

ROWS_AT_ONCE = 512
NUMBERS_AT_ONCE = 1 << 20
DTYPES = ("uint8", "uint16", "int16", "uint32", "int32", "uint64", "int64")
_HEADERS = {20240520: "uint16", 20240801: "uint32"}
"""Magic numbers of llm.c's token files (256 32-bit numbers, then tokens), and the width of the tokens."""

_HEADER_BYTES = 1024

Numbers = NumberFile | np.ndarray[Any, Any]


@final
class TokenFile(DataFormat):
    """Files of tokens: ``.bin`` (nanoGPT's, llm.c's, any raw numbers), and ``.npy`` of tokens or features."""

    kind = "token-file"
    suffixes: ClassVar[tuple[str, ...]] = (".bin", ".npy")

    def claims(self, path: Path, head: bytes) -> bool:
        return head.startswith(b"\x93NUMPY") or (path.suffix == ".bin" and not has_index(path))

    def notes(self, path: Path) -> tuple[str, ...]:
        if path.suffix == ".npy":
            return ()
        return (f"{path.name} says nothing of its numbers; --dtype does (uint16 is assumed).",)

    def reads_dtype(self, path: Path) -> bool:
        return path.suffix != ".npy"

    def rows(self, path: Path, options: Options, tell: Tell) -> Iterator[list[Row]]:
        numbers = _numbers(path, options)
        length = options.length or LENGTH
        if numbers.ndim > 1:
            yield from _of_rows(numbers, path, tell)
            return
        if numbers.dtype.kind not in "iu":
            raise UsageError(f"{path}: {numbers.dtype} numbers behind each other; tokens are whole numbers")
        count = -(-len(numbers) // length)
        for begin in range(0, count, ROWS_AT_ONCE):
            places = range(begin, min(begin + ROWS_AT_ONCE, count))
            block = _rows(numbers, begin * length, places[-1] * length + length).astype(np.int64)
            yield [
                Row(
                    place,
                    f"{path.name}:{place * length}",
                    {"input_ids": block[at * length : (at + 1) * length]},
                )
                for at, place in enumerate(places)
            ]
            tell(path.name, places[-1] + 1, count)


def _rows(numbers: Numbers, begin: int, end: int) -> np.ndarray[Any, Any]:
    return numbers[begin:end] if isinstance(numbers, np.ndarray) else numbers.rows(begin, end)


def _of_rows(numbers: Numbers, path: Path, tell: Tell) -> Iterator[list[Row]]:
    field = "input_ids" if numbers.ndim == 2 and numbers.dtype.kind in "iu" else "values"
    at_once = max(1, min(ROWS_AT_ONCE, NUMBERS_AT_ONCE // max(1, math.prod(numbers.shape[1:]))))
    for begin in range(0, len(numbers), at_once):
        block = _rows(numbers, begin, begin + at_once)
        block = block.reshape(len(block), math.prod(block.shape[1:]))
        yield [
            Row(begin + place, f"{path.name}:{begin + place}", {field: values}) for place, values in enumerate(block)
        ]
        tell(path.name, begin + len(block), len(numbers))


def _numbers(path: Path, options: Options) -> Numbers:
    try:
        if path.suffix == ".npy":
            return of_npy(path)
        with open_regular(path) as file:
            header = _HEADERS.get(int.from_bytes(file.read(4), "little"))
        dtype = np.dtype(options.dtype or header or "uint16")
        offset = _HEADER_BYTES if header is not None else 0
        size = path.stat().st_size - offset
        if size <= 0:
            raise UsageError(f"{path}: no tokens in it")
        if size % dtype.itemsize:
            raise UsageError(
                f"{path}: {size} bytes are no whole number of {dtype} ({dtype.itemsize} bytes); name another --dtype"
            )
        return NumberFile(path, dtype, (size // dtype.itemsize,), offset=offset)
    except (OSError, ValueError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"{path}: cannot be read ({error})") from None
