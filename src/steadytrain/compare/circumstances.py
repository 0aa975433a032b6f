"""Configuration and environment entries in which two runs differ: command line, settings, versions, machine, commit."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steadytrain.compare.differences import plainly
from steadytrain.core.bounded_files import read_json
from steadytrain.core.json_values import JsonValue
from steadytrain.storage.run_folder import Run

ENTRIES_MAX = 2_000
DEPTH_MAX = 8
JSON_BYTES_MAX = 64 << 20

_OF_A_RUN = (
    *("name", "started", "ended", "ended_at", "pid", "format", "version", "notes", "warnings", "argv", "exit_status"),
    *("detectors", "machine_notes", "loads", "clipped_before_unscaling", "run_dir", "runs_dir", "output_dtypes"),
    *("created", "structure", "cost", "origin", "process", "process_start"),
)
"""Entries about a run's identity, times or outcome, not about its configuration."""

_OF_A_TRAINING = ("evaluations", "output_dir", "logging_dir", "run_name", "log_history", "stream")
_OF_A_DIRECTION = (
    "argv",
    "trainers",
    "optimizer",
    "model",
    "precision",
    "versions",
    "torch",
    "python",
    "git",
    "numerics",
)
_SEED = re.compile(r"(^|[._\- ])(data_)?seed$", re.IGNORECASE)
_OPTION = re.compile(r"^--?([A-Za-z][\w.\-]*)(?:=(.*))?$", re.DOTALL)


@dataclass(frozen=True)
class Entry(JsonValue, keys="name left right seed:is_seed"):
    """One entry that differs: its value in each run, None if a run lacks it."""

    name: str
    left: str | None
    right: str | None

    @property
    def is_seed(self) -> bool:
        return bool(_SEED.search(self.name))


def differing(left: Run, right: Run) -> tuple[Entry, ...]:
    """The entries that differ: user settings first, then the machine.

    What one run alone recorded anything about (the machine, which only an incident records) is no difference.
    """
    ours, theirs = circumstances(left), circumstances(right)
    names = [*ours, *(name for name in theirs if name not in ours)]
    found = [Entry(name, ours.get(name), theirs.get(name)) for name in names if ours.get(name) != theirs.get(name)]
    asked = _asked(left) | _asked(right)
    both = {_head(name) for name in ours} & {_head(name) for name in theirs}
    shown = (one for one in found if _head(one.name) in asked | both or None not in (one.left, one.right))
    return tuple(sorted(shown, key=lambda entry: _rank(entry.name)))


def _asked(run: Run) -> set[str]:
    """Heads of the entries that every run has, if they hold for it: its command line and its description."""
    return {"argv", *map(str, run.description)}


def _head(name: str) -> str:
    return name.split(".", 1)[0]


def circumstances(run: Run) -> dict[str, str]:
    """All entries of a run as text, by dotted name."""
    entries: dict[str, str] = {}
    for name, value in _arguments(run.description.get("argv")).items():
        entries[f"argv.{name}"] = value
    for source in (run.description, run.facts, *_environment(run)):
        for name, value in source.items():
            if name not in _OF_A_RUN:
                _flatten(entries, str(name), value, 0)
    return entries


def seed_of(run: Run) -> str | None:
    """The run's seed, if its command line or its trainer gives one."""
    found = [value for name, value in circumstances(run).items() if _SEED.search(name)]
    return found[0] if found else None


def _rank(name: str) -> int:
    head = _head(name)
    return _OF_A_DIRECTION.index(head) if head in _OF_A_DIRECTION else len(_OF_A_DIRECTION)


def _arguments(argv: Any) -> dict[str, str]:
    """A command line by option: ``--lr 3e-4`` and ``--lr=3e-4`` are equal. Other words are numbered."""
    found: dict[str, str] = {}
    words = [str(word) for word in argv[1:]] if isinstance(argv, list) else []
    position = 0
    while words:
        word = words.pop(0)
        option = _OPTION.match(word)
        if option is None:
            found[f"argument {position}"] = word
            position += 1
        elif option[2] is not None:
            found[option[1]] = option[2]
        else:
            takes = bool(words) and not _OPTION.match(words[0])
            found[option[1]] = words.pop(0) if takes else "given"
    return found


def _environment(run: Run) -> list[Mapping[str, Any]]:
    """The environment that the run's last incident recorded, which has more detail than the run."""
    for bundle in reversed(run.incidents):
        file = Path(bundle) / "environment.json"
        try:
            if file.is_file() and not file.is_symlink():
                data = read_json(file, bytes_max=JSON_BYTES_MAX)
                return [data] if isinstance(data, dict) else []
        except (OSError, ValueError, RecursionError):
            continue
    return []


def _flatten(entries: dict[str, str], name: str, value: Any, depth: int) -> None:
    if len(entries) >= ENTRIES_MAX or depth > DEPTH_MAX or name.rpartition(".")[2] in _OF_A_TRAINING:
        return
    if isinstance(value, Mapping):
        for key, entry in value.items():
            if str(key) not in _OF_A_RUN:
                _flatten(entries, f"{name}.{key}", entry, depth + 1)
    elif isinstance(value, list) and any(isinstance(entry, (Mapping, list)) for entry in value):
        for index, entry in enumerate(value):
            _flatten(entries, f"{name}.{index}" if len(value) > 1 else name, entry, depth + 1)
    else:
        entries.setdefault(name, plainly(value))
