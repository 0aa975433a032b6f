"""Find the index of Megatron token files: the ``NAME.idx`` beside ``NAME.bin`` with the start of each row."""

from __future__ import annotations

from pathlib import Path

MARK = b"MMIDIDX\x00\x00"


def has_index(path: Path) -> bool:
    """Whether the token file at ``path`` has such an index."""
    try:
        with path.with_suffix(".idx").open("rb") as file:
            return file.read(len(MARK)) == MARK
    except OSError:
        return False
