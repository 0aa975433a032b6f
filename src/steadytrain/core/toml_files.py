"""Reads a TOML file that a user wrote, such as a policy. What is in it is judged by the caller."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from steadytrain.core.bounded_files import open_regular
from steadytrain.core.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE_BYTES_MAX = 1 << 20


def read_toml(path: Path, *, what: str) -> dict[str, Any]:
    """The document in the file ``path``. ``what`` names what the user meant it to be, for errors.

    Raises:
        UsageError: not a regular file, not readable, larger than 1 MiB, not UTF-8 text, or not TOML.
    """
    try:
        with open_regular(path) as file:
            text = file.read(FILE_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if len(text) > FILE_BYTES_MAX:
        raise UsageError(f"{path}: larger than {FILE_BYTES_MAX >> 10} KiB, so it is no {what}")
    try:
        return tomllib.loads(text.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8 text (byte {error.start})") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: not TOML: {' '.join(str(error).split())}") from None
