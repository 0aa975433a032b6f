"""Write pages atomically: a reader sees the old ones or the new ones."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from steadytrain.core.errors import UsageError


def write_page(output: Path, text: str) -> int:
    """Write ``text`` atomically and return its size in bytes. A pipe or device is written to and stays what it is.

    Raises:
        UsageError: the disk is full, or the folder cannot be written.
    """
    return write_pages({output: text})[output]


def write_pages(pages: Mapping[Path, str]) -> dict[Path, int]:
    """Write several pages, or none of them: each is whole beside its place before the first one takes its place.

    Returns:
        The size of each in bytes.

    Raises:
        UsageError: as :func:`write_page`.
    """
    written: dict[Path, int] = {}
    temporaries: list[tuple[str, Path]] = []
    at = Path()
    try:
        for at, text in pages.items():
            data = text.encode("utf-8")
            if at.exists() and not at.is_file():  # also /dev/stdout, and a folder, which refuses
                at.write_bytes(data)
            else:
                place = Path(os.path.realpath(at))  # a link stays one
                handle, temporary = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name[:100]}.")
                temporaries.append((temporary, place))
                with os.fdopen(handle, "wb") as file:
                    file.write(data)
                umask = os.umask(0)
                os.umask(umask)
                os.chmod(temporary, 0o666 & ~umask)
            written[at] = len(data)
        for temporary, at in temporaries:
            os.replace(temporary, at)
    except OSError as error:
        for temporary, _ in temporaries:
            Path(temporary).unlink(missing_ok=True)
        raise UsageError(f"{at}: cannot be written ({error.strerror})") from None
    return written
