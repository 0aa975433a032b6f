"""Reads a TOML file that a user wrote, such as a policy. What is in it is judged by the caller."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from steadytrain.core.bounded_files import open_regular
from steadytrain.core.errors import UsageError
from steadytrain.core.own_errors import own

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE_BYTES_MAX = 1 << 20
BITS_MAX = 64
"""Of a whole number: what TOML has. Longer ones are no number of Python's floats, and the longest are not even text."""


def read_toml(path: Path, *, what: str) -> dict[str, Any]:
    """The document in the file ``path``. ``what`` names what the user meant it to be, for errors.

    Raises:
        UsageError: not a regular file, not readable, larger than 1 MiB, not UTF-8 text, or not TOML. A whole number of
            more than 64 bits is not.
    """
    try:
        with open_regular(path) as file:
            text = file.read(FILE_BYTES_MAX + 1)
    except own(OSError, ValueError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if len(text) > FILE_BYTES_MAX:
        raise UsageError(f"{path}: larger than {FILE_BYTES_MAX >> 10} KiB, so it is no {what}")
    try:
        document = tomllib.loads(text.decode("utf-8"))
        name = _of_too_many_bits(document)
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8 text (byte {error.start})") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not TOML: {' '.join(str(error).split())}") from None
    if name is not None:
        raise UsageError(f"{path}: not TOML: {name} is a whole number of more than {BITS_MAX} bits")
    return document


def _of_too_many_bits(value: Any, name: str = "an entry") -> str | None:
    """The name of the first whole number that is too long."""
    if isinstance(value, int):
        return name if value.bit_length() > BITS_MAX else None
    inner: Iterable[tuple[str, Any]] = ()
    if isinstance(value, dict):
        inner = value.items()
    elif isinstance(value, list):
        inner = ((name, one) for one in value)
    return next((found for key, one in inner if (found := _of_too_many_bits(one, key)) is not None), None)
