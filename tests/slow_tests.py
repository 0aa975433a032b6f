"""Marks the tests of ``slow_tests.txt`` as long."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

LIST = Path(__file__).with_suffix(".txt")


def listed(text: str) -> dict[str, set[str]]:
    """The names of tests by the file, relative to the root, that they are in."""
    found: dict[str, set[str]] = {}
    names: set[str] = set()
    for line in text.splitlines():
        if line.startswith("#") or not line.strip():
            continue
        if line[0] == " ":
            names.add(line.strip())
        else:
            names = found.setdefault(line.strip(), set())
    return found


def mark(items: Iterable[pytest.Item], wanted: dict[str, set[str]]) -> list[str]:
    """Mark each item that is listed. Returned are the entries for collected files that name none of their tests."""
    left = {path: set(names) for path, names in wanted.items()}
    collected = set()
    for item in items:
        path, _, name = item.nodeid.partition("::")
        collected.add(path)
        for entry in {name, name.partition("[")[0]} & wanted.get(path, set()):
            item.add_marker(pytest.mark.long)
            left[path].discard(entry)
    return [f"{path}::{name}" for path in sorted(collected & left.keys()) for name in sorted(left[path])]


def mark_all(config: pytest.Config, items: Iterable[pytest.Item]) -> None:
    """Mark what is listed; where whole files were collected, an entry that names no test is a usage error."""
    unknown = mark(items, listed(LIST.read_text(encoding="utf-8")))
    if unknown and not any("::" in argument for argument in config.args):
        raise pytest.UsageError(f"{LIST.name} names tests that do not exist: {', '.join(unknown)}")
