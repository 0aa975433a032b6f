"""The index beside Megatron's tokens: which ``NAME.bin`` has a ``NAME.idx`` that says where its rows begin."""

from __future__ import annotations

from pathlib import Path

MARK = b"MMIDIDX\x00\x00"


def has_index(path: Path) -> bool:
    """Whether the file of tokens at ``path`` has such an index beside it."""
    try:
        with path.with_suffix(".idx").open("rb") as file:
            return file.read(len(MARK)) == MARK
    except OSError:
        return False
