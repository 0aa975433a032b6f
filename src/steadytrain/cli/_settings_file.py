"""The settings file, ``steadytrain.toml`` or ``pyproject.toml``, searched upwards. It does not know the options."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steadytrain.core.errors import UsageError
from steadytrain.core.plugins import nearest
from steadytrain.core.toml_files import FILE_BYTES_MAX, read_toml

OWN = "steadytrain.toml"
PROJECT = "pyproject.toml"
TABLE = "run"
FOLDERS_MAX = 64
"""So many folders above a start are searched."""


@dataclass(frozen=True)
class SettingsFile:
    """``values`` by the name of the option with hyphens; ``table`` is where they stand in the file."""

    path: Path
    table: str
    values: Mapping[str, Any]

    def refuse_unknown(self, known: Sequence[str]) -> None:
        """Refuse an option that there is not.

        Raises:
            UsageError: there is one.
        """
        for name in self.values:
            if name not in known:
                raise UsageError(f"{self.path}: [{self.table}] {name}: no such option of run; {nearest(name, known)}")


def find(starts: Sequence[Path]) -> tuple[SettingsFile | None, list[str]]:
    """The first file that has settings, upwards from each start in turn, and a warning for each that is not trusted.

    Raises:
        UsageError: a file with settings cannot be read, or they are not in the expected form.
    """
    warnings: list[str] = []
    for start in starts:
        for path in _candidates(start):
            if not _is_trusted(path, start):
                warnings.append(f"{path}: not read: it belongs to another user than {start}")
                continue
            found = _read(path)
            if found is not None:
                return found, warnings
    return None, list(dict.fromkeys(warnings))


def _candidates(start: Path) -> Iterator[Path]:
    for folder in [start, *start.parents][:FOLDERS_MAX]:
        for name in (OWN, PROJECT):
            path = folder / name
            if os.path.isfile(path):  # unlike that of Path, it does not raise for a folder that may not be entered
                yield path


def _is_trusted(path: Path, start: Path) -> bool:
    """Whether the file belongs to us, to root, or to the owner of the start: an option may name a command to run."""
    try:
        return path.stat().st_uid in (os.geteuid(), 0, start.stat().st_uid)
    except OSError:
        return False


def _read(path: Path) -> SettingsFile | None:
    try:
        document = read_toml(path, what="settings file")
    except UsageError:
        if path.name == PROJECT and not _mentions_us(path):
            return None
        raise
    if path.name == OWN:
        return _settings_file(path, document, "")
    tool = document.get("tool")
    own = tool.get("steadytrain") if isinstance(tool, dict) else None
    return None if own is None else _settings_file(path, own, "tool.steadytrain.")


def _mentions_us(path: Path) -> bool:
    """Whether a damaged project file may have settings of ours. If not, its damage is not ours to report."""
    try:
        with path.open("rb") as file:
            return re.search(rb"tool\W+steadytrain\b", file.read(FILE_BYTES_MAX + 1)) is not None
    except OSError:
        return False


def _settings_file(path: Path, own: Any, before: str) -> SettingsFile:
    if not isinstance(own, dict):
        raise UsageError(f"{path}: {before.rstrip('.')} must be a table; the options of run stand in [{before}{TABLE}]")
    for name in own:
        if name != TABLE:
            raise UsageError(f"{path}: {before}{name}: not known; the options of run stand in [{before}{TABLE}]")
    table = own.get(TABLE, {})
    if not isinstance(table, dict):
        raise UsageError(f"{path}: {before}{TABLE} must be a table: [{before}{TABLE}]")
    values: dict[str, Any] = {}
    for key, value in table.items():
        name = key.replace("_", "-")
        if name in values:
            raise UsageError(f"{path}: [{before}{TABLE}] {name}: given twice, with and without underscores")
        values[name] = value
    return SettingsFile(path, before + TABLE, values)
