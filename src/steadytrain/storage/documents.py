"""The one place through which text goes to a file, a pipe or a page: everything is redacted here.

A test finds every other writer in the package (``tests/storage/test_writers.py``).
"""

from __future__ import annotations

import copy
import dataclasses
import json
from pathlib import Path
from typing import Any, TypeVar

from steadytrain.storage.redaction import redact_text, redact_tree

ValueT = TypeVar("ValueT")

COMPACT = (",", ":")
VALUES_DEPTH_MAX = 32


def as_json(
    data: Any, *, name: str = "", indent: int | None = None, separators: tuple[str, str] | None = None, **options: bool
) -> str:
    """``data`` as redacted JSON; ``name`` is what it stands under. ``options`` are those of ``json.dumps``."""
    return json.dumps(redact_tree(data, name=name), indent=indent, separators=separators, **options)  # type: ignore[arg-type]


def write_text(path: Path, text: str, *, errors: str = "strict") -> None:
    """Write redacted text as UTF-8. Raises ``OSError`` if the disk does not take it."""
    path.write_text(redact_text(text), encoding="utf-8", errors=errors)


def redact_value(value: ValueT) -> ValueT:
    """A value with the secrets in its strings replaced: dataclasses, lists, tuples and dictionaries, at any depth.

    What holds no secret is returned as it is. Arrays and numbers are not looked at.
    """
    found: ValueT = _redacted(value, 0)
    return found


def _redacted(value: Any, depth: int) -> Any:
    if type(value) is str:
        return redact_text(value)
    if depth > VALUES_DEPTH_MAX or value is None or isinstance(value, (int, float, str, type)):
        return value
    if isinstance(value, (list, tuple)):
        if not value or isinstance(value[0], (int, float)):
            return value
        entries = [_redacted(entry, depth + 1) for entry in value]
        if all(new is old for new, old in zip(entries, value, strict=True)):
            return value
        return type(value)(*entries) if hasattr(value, "_fields") else type(value)(entries)
    if type(value) is dict:
        return redact_tree(value) if all(_is_plain(entry) for entry in value.values()) else _redacted_dict(value, depth)
    if dataclasses.is_dataclass(value):
        return _redacted_fields(value, depth)
    return value


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (str, int, float))


def _redacted_dict(value: dict[Any, Any], depth: int) -> dict[Any, Any]:
    return {_redacted(key, depth + 1): _redacted(entry, depth + 1) for key, entry in value.items()}


def _redacted_fields(value: Any, depth: int) -> Any:
    changed = {}
    for field in dataclasses.fields(value):
        old = getattr(value, field.name, None)
        new = _redacted(old, depth + 1)
        if new is not old:
            changed[field.name] = new
    if not changed:
        return value
    made = copy.copy(value)
    for name, new in changed.items():
        object.__setattr__(made, name, new)
    return made
