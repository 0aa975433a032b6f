"""Writes tensors to a safetensors file directly from their memory, and computes their digests on the way.

No tensor is copied as a whole. The caller ensures that nothing changes them meanwhile, or checks for changes
afterwards.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from steadytrain.capture.snapshots.digests import Words, bytes_of, labelled, plain_bytes, plain_values
from steadytrain.storage.redaction import redact_text

PIECE_BYTES = 4 << 20
"""Bytes written and digested at a time. ``go_on`` is called in between, so this bounds the delay of giving up."""

TOGETHER_BYTES = 1 << 16
"""Smaller tensors are written together: a step on the tape has several."""

ALIGNMENT = 8
_DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint64: "U64",
    torch.uint32: "U32",
    torch.uint16: "U16",
    torch.uint8: "U8",
    torch.bool: "BOOL",
    torch.complex64: "C64",
}


class GivenUp(Exception):  # noqa: N818 (not an error: the writer was told to stop)
    """Raised by :func:`write_tensors` when ``go_on`` returned False. The file is incomplete; the caller removes it."""


def can_be_written(tensor: Tensor) -> bool:
    return tensor.dtype in _DTYPES


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], *, go_on: Callable[[], bool], with_digests: bool = True
) -> dict[str, str]:
    """Write ``tensors`` (on the host, with dtypes that :func:`can_be_written`) to ``path``; returns their digests.

    Without ``with_digests`` it computes and returns none. Overwrites an existing file.

    Raises:
        GivenUp: ``go_on`` returned False.
        OSError: the disk cannot store the file.
    """
    header: dict[str, Any] = {}
    at = 0
    for name, tensor in tensors.items():
        size = tensor.numel() * tensor.element_size()
        header[redact_text(name)] = {
            "dtype": _DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [at, at + size],
        }
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    digests = {}
    with path.open("r+b" if path.exists() else "wb", buffering=0) as file:
        small = bytearray(len(text).to_bytes(8, "little") + text)
        for name, tensor in tensors.items():
            values, data, words = tensor, plain_bytes(tensor), Words()
            if data is None:
                values = plain_values(tensor)
                data = bytes_of(values)
            for start in range(0, len(data), PIECE_BYTES):
                if not go_on():
                    raise GivenUp
                piece = data[start : start + PIECE_BYTES]
                if len(piece) < TOGETHER_BYTES:
                    small += memoryview(piece)  # type: ignore[arg-type]
                if len(piece) >= TOGETHER_BYTES or len(small) >= TOGETHER_BYTES:
                    _write(file, memoryview(small))
                    small = bytearray()
                if len(piece) >= TOGETHER_BYTES:
                    _write(file, memoryview(piece))  # type: ignore[arg-type]
                if with_digests:
                    words.add(piece)
            if with_digests:
                digests[name] = labelled(values, words)
        _write(file, memoryview(small))
        file.truncate()
    return digests


def _write(file: Any, data: memoryview) -> None:
    """Write all of ``data``: one write to a raw file may store only a part."""
    while len(data):
        data = data[file.write(data) :]
