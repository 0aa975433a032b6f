"""Whether a file of tensors holds NaN or Inf, read without torch."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

HEADER_BYTES_MAX = 1 << 26
PIECE_BYTES = 1 << 24
BFLOAT16_EXPONENT = 0x7F80
FLOATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
"""Types of numbers in the safetensors format, as NumPy reads them; bfloat16 by its bits."""


def holds_nonfinite(path: Path) -> bool:
    """Whether a tensor of the safetensors file at ``path`` holds NaN or Inf. The format begins with the length of its
    header, 8 bytes, little-endian; offsets count from the header's end.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no such file.
    """
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 0 < length <= HEADER_BYTES_MAX:
            raise ValueError(f"{path}: no safetensors file: a header of {length} bytes")
        header = json.loads(file.read(length))
    if not path.stat().st_size > 8 + length:
        return False
    whole = np.memmap(path, np.uint8, "r", offset=8 + length)
    for name, entry in header.items():
        kind = FLOATS.get(entry["dtype"]) if name != "__metadata__" else None
        if kind is None:
            continue
        start, end = entry["data_offsets"]
        for at in range(start, end, PIECE_BYTES):
            values = np.frombuffer(whole[at : min(at + PIECE_BYTES, end)].tobytes(), kind)
            if entry["dtype"] == "BF16":
                values = np.where(values & BFLOAT16_EXPONENT == BFLOAT16_EXPONENT, np.nan, 0.0)
            if not np.isfinite(values).all():
                return True
    return False
