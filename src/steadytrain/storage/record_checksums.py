"""Check the CRCs of many records at once.

One call of zlib for each of a million records takes half a second. The CRC of a whole block takes a fiftieth, and the
CRCs of its records determine what it must be: CRC-32 is linear, so neighbours combine pairwise (as in zlib's
``crc32_combine``). Only a block that does not match is searched record by record.
"""

from __future__ import annotations

import zlib
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

CRC_BYTES = 4
"""Every record begins with its CRC, computed over the record with this field set to zero."""


def whole_records(rows: NDArray[Any]) -> int:
    """Number of leading records that match their CRC. ``rows`` must be contiguous."""
    if len(rows) == 0:
        return 0
    size = rows.dtype.itemsize
    data = rows.view(np.uint8).data
    if zlib.crc32(data) == _combined(rows["crc"], size):
        return len(rows)
    zeroed = zlib.crc32(bytes(CRC_BYTES))
    for index, expected in enumerate(rows["crc"].tolist()):
        if zlib.crc32(data[index * size + CRC_BYTES : (index + 1) * size], zeroed) != expected:
            return index
    return len(rows)


def _combined(crcs: NDArray[Any], size: int) -> int:
    """The CRC of whole records of ``size`` bytes behind each other, whose fields hold ``crcs``."""
    own = np.ascontiguousarray(crcs, np.uint32)
    found, shift = own ^ _shifted(own, _field(size)), _shift(size)
    while len(found) > 1:
        if len(found) % 2:
            found = np.concatenate([np.zeros(1, np.uint32), found])  # the CRC of nothing
        found = _shifted(found[::2], shift) ^ found[1::2]
        shift = _shifted(shift, shift)
    return int(found[0])


def _shifted(crcs: NDArray[np.uint32], shift: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """What the CRCs contribute to that of a longer block, by the table ``shift`` of that length."""
    parts = [shift[at].take(crcs >> np.uint32(8 * at) & np.uint32(255)) for at in range(4)]
    return np.asarray(parts[0] ^ parts[1] ^ parts[2] ^ parts[3], np.uint32)


@lru_cache(maxsize=16)
def _shift(size: int) -> NDArray[np.uint32]:
    """The table of a length in bytes, for each of the four bytes of a CRC, shape (4, 256)."""
    zeros = bytes(size)
    base = zlib.crc32(zeros, 0)
    table = [[zlib.crc32(zeros, byte << 8 * at) ^ base for byte in range(256)] for at in range(4)]
    return np.array(table, np.uint32)


@lru_cache(maxsize=16)
def _field(size: int) -> NDArray[np.uint32]:
    """The table of what the field itself adds to the CRC of a record of ``size`` bytes, shape (4, 256)."""
    base, rest = zlib.crc32(bytes(size)), bytes(size - CRC_BYTES)
    table = [
        [zlib.crc32((byte << 8 * at).to_bytes(4, "little") + rest) ^ base for byte in range(256)] for at in range(4)
    ]
    return np.array(table, np.uint32)
