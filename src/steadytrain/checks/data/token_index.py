"""Find the index of Megatron token files: the ``NAME.idx`` beside ``NAME.bin`` with the start of each row."""

from __future__ import annotations

from pathlib import Path

from steadytrain.core.bounded_files import open_regular
from steadytrain.core.errors import UsageError

MARK = b"MMIDIDX\x00\x00"


def has_index(path: Path) -> bool:
    """Whether the token file at ``path`` has such an index."""
    try:
        with open_regular(path.with_suffix(".idx")) as file:
            return file.read(len(MARK)) == MARK
    except (OSError, UsageError):
        return False
