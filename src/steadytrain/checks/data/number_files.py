"""Numbers in a file, read in parts. The file is not mapped: reading a mapped file that shrinks ends the process."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from steadytrain.core.bounded_files import check_memory, open_regular
from steadytrain.core.errors import UsageError

AXES_MAX = 32
"""Most axes of an array. NumPy has no more."""


class NumberFile:
    """An array in a file: rows of equal shape behind each other, from ``offset`` on.

    Raises:
        UsageError: the file is smaller than the array, or not a regular file.
        OSError: it cannot be opened.
    """

    def __init__(self, path: Path, dtype: np.dtype[Any], shape: Sequence[int], *, offset: int = 0) -> None:
        if not shape or len(shape) > AXES_MAX or min(shape) < 0 or dtype.itemsize == 0:
            raise UsageError(f"{path}: an array of shape {tuple(shape)[:AXES_MAX]}, which has no rows")
        self.path, self.dtype, self.shape, self._offset = path, dtype, tuple(shape), offset
        self._row_bytes = dtype.itemsize * math.prod(self.shape[1:])
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
        if offset + self._row_bytes * len(self) > size:
            raise UsageError(f"{path}: {size:,} bytes, too few for {math.prod(self.shape):,} numbers of {dtype}")

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def rows(self, begin: int, end: int) -> np.ndarray[Any, Any]:
        """The rows from ``begin`` to before ``end``, or to the last.

        Raises:
            UsageError: the file has become smaller, or cannot be read, or the rows do not fit in memory.
        """
        begin, end = min(begin, len(self)), min(end, len(self))
        wanted = (end - begin) * self._row_bytes
        check_memory(self.path, wanted)
        try:
            with open_regular(self.path) as file:
                file.seek(self._offset + begin * self._row_bytes)
                read = file.read(wanted)
        except OSError as error:
            raise UsageError(f"{self.path}: cannot be read ({error.strerror or error})") from None
        if len(read) < wanted:
            raise UsageError(f"{self.path}: it became smaller while it was read")
        return np.frombuffer(read, self.dtype).reshape(end - begin, *self.shape[1:])


def of_npy(path: Path) -> NumberFile | np.ndarray[Any, Any]:
    """The array in an ``.npy`` file. One that is stored column by column is read whole.

    Raises:
        UsageError: not an array of numbers, or it does not fit in memory.
        OSError, ValueError: it cannot be read.
    """
    with open_regular(path) as file:
        version = np.lib.format.read_magic(file)
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        try:
            shape, by_column, dtype = header(file)
        except Exception as error:  # NumPy parses the header as Python: TokenError, SyntaxError, RecursionError, ...
            raise UsageError(f"{path}: its header cannot be read ({type(error).__name__})") from None
        offset = file.tell()
    if not shape or dtype.kind not in "iuf":
        raise UsageError(f"{path}: an array of {dtype} with shape {shape}; numbers are looked at")
    stored = NumberFile(path, dtype, shape[::-1] if by_column else shape, offset=offset)
    return stored.rows(0, len(stored)).T if by_column and len(shape) > 1 else stored
