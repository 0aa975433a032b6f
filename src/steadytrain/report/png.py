"""A small picture as a PNG in a ``data:`` URL, made with NumPy and zlib only."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
from numpy.typing import NDArray

from steadytrain.report.colours import Palette

_INDEXED = 3
_LEVEL = 9


def data_address(levels: NDArray[np.uint8], palette: Palette) -> str:
    """``levels``, shape ``(rows, columns)``, as a ``data:`` URL in the colours of ``palette``, first row on top."""
    return f"data:image/png;base64,{base64.b64encode(indexed_png(levels, palette)).decode()}"


def indexed_png(levels: NDArray[np.uint8], palette: Palette) -> bytes:
    """The PNG file: one byte per pixel, or half a byte if the palette has at most 16 colours."""
    height, width = levels.shape
    depth = 4 if len(palette) <= 16 else 8
    if depth == 4:
        even = np.pad(levels, ((0, 0), (0, width % 2)))
        levels = np.bitwise_or(even[:, ::2] * np.uint8(16), even[:, 1::2])
    # Each line begins with its filter number: none.
    lines = np.pad(levels, ((0, 0), (1, 0)))
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, _INDEXED, 0, 0, 0)),
            _chunk(b"PLTE", palette[:, :3].tobytes()),
            # Colours missing from the list of opacities are opaque.
            _chunk(b"tRNS", palette[:, 3].tobytes().rstrip(b"\xff")),
            _chunk(b"IDAT", zlib.compress(lines.tobytes(), _LEVEL)),
            _chunk(b"IEND", b""),
        ]
    )


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
