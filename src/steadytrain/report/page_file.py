"""Write a page atomically: a reader sees the old one or the new one."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from steadytrain.core.errors import UsageError


def write_page(output: Path, text: str) -> int:
    """Write ``text`` atomically and return its size in bytes. A pipe or device is written to and stays what it is.

    Raises:
        UsageError: the disk is full, or the folder cannot be written.
    """
    data = text.encode("utf-8")
    temporary = None
    try:
        if output.exists() and not output.is_file():  # also /dev/stdout, and a folder, which refuses
            output.write_bytes(data)
            return len(data)
        output = Path(os.path.realpath(output))  # a link stays one
        handle, temporary = tempfile.mkstemp(dir=output.parent, prefix=f".{output.name[:100]}.")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, output)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        raise UsageError(f"{output}: cannot be written ({error.strerror})") from None
    return len(data)
