"""What the index of a run says, read again only when it changed: symptoms, incidents, actions, and some facts.

Bounded: a live view shows the newest entries and counts the rest. Not here: all entries (``run_folder.open_run``).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steadytrain.core.incident import Action
from steadytrain.core.model import Severity, Symptom
from steadytrain.storage.index_reading import open_index
from steadytrain.storage.run_folder import bundles_inside
from steadytrain.storage.run_index import INDEX_FILE, SIDE_FILES

SYMPTOMS_MAX = 200
INCIDENTS_MAX = 1_000
FACTS = ("ended", "exit_status", "ended_at", "planned_steps", "detectors", "warnings")
"""The facts that a live view shows."""

_MARKS = ", ".join("?" for _ in FACTS)


@dataclass(frozen=True)
class News:
    """The newest entries of an index. ``counts`` has the number of symptoms of each severity."""

    facts: dict[str, Any] = field(default_factory=dict)
    symptoms: tuple[Symptom, ...] = ()
    counts: dict[Severity, int] = field(default_factory=dict)
    incidents: tuple[Path, ...] = ()
    actions: int = 0
    last_action: Action | None = None


class NewsReader:
    """The news of the run folder ``path``."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._signature: object = None
        self._news = News()

    def read(self) -> News:
        """
        Raises:
            UsageError: the index is damaged.
        """
        signature = [_signature(self._path / f"{INDEX_FILE}{end}") for end in ("", SIDE_FILES[0])]
        if signature != self._signature:
            self._news = _read(self._path)
            self._signature = signature
        return self._news


def _signature(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def _read(path: Path) -> News:
    with open_index(path) as index:
        facts = index.execute(f"SELECT name, value FROM facts WHERE name IN ({_MARKS})", FACTS).fetchall()
        newest = "SELECT document FROM symptoms ORDER BY last_step DESC, first_step DESC LIMIT ?"
        symptoms = index.execute(newest, (SYMPTOMS_MAX,)).fetchall()
        counts = index.execute("SELECT severity, count(*) FROM symptoms GROUP BY severity LIMIT 10").fetchall()
        incidents = index.execute("SELECT path FROM incidents ORDER BY step, path LIMIT ?", (INCIDENTS_MAX,))
        bundles = [name for (name,) in incidents]
        actions = index.execute("SELECT count(*) FROM actions").fetchone()[0]
        last = index.execute("SELECT document FROM actions ORDER BY id DESC LIMIT 1").fetchone()
        return News(
            facts={name: json.loads(value) for name, value in facts},
            symptoms=tuple(Symptom.from_json(json.loads(document)) for (document,) in symptoms),
            counts=dict(counts),
            incidents=bundles_inside(path, bundles),
            actions=actions,
            last_action=Action.from_json(json.loads(last[0])) if last else None,
        )
