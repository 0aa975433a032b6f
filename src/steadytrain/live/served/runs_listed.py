"""The list of runs, kept between requests: a run that is over is read again only if its index
changed, another one at most once a second.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

from steadytrain.core.errors import UsageError
from steadytrain.report.wording import clean
from steadytrain.storage.run_folder import RUN_FILE
from steadytrain.storage.run_index import INDEX_FILE
from steadytrain.storage.run_summaries import RunSummary, summary_of

LISTED_MAX = 500
FRESH_S = 1.0
GOING_ON = ("running", "not recorded")
"""States in which steps may come without a change of the index."""


class RunsListed:
    """The runs below ``root``, the newest first."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._known: dict[str, tuple[object, RunSummary]] = {}
        self._made_at = -FRESH_S
        self._listed: dict[str, Any] = {}

    def read(self) -> dict[str, Any]:
        """The document of the list: ``runs``, how many there are, and one line for each that cannot be read."""
        with self._lock:
            if time.monotonic() - self._made_at >= FRESH_S:
                self._listed = self._made()
                self._made_at = time.monotonic()
            return self._listed

    def _made(self) -> dict[str, Any]:
        with os.scandir(self._root) as entries:
            names = [
                entry.name for entry in entries if os.path.isfile(f"{entry.path}/{RUN_FILE}") and self._opens(entry)
            ]
        newest = sorted(names, key=self._changed, reverse=True)[:LISTED_MAX]
        self._known = {name: self._known[name] for name in newest if name in self._known}
        found, unreadable = [], []
        for name in newest:
            try:
                found.append((name, self._summary(name)))
            except UsageError as error:
                unreadable.append(clean(error))
        found.sort(key=lambda pair: (pair[1].state == "running", pair[1].started), reverse=True)
        return {
            "runs": [_row(name, run) for name, run in found],
            "total": len(names),
            "unreadable": unreadable[:LISTED_MAX],
        }

    def _opens(self, entry: os.DirEntry[str]) -> bool:
        """Not a link out of the folder, not a hidden one, and no name that an address cannot hold."""
        outside = entry.is_symlink() and not Path(entry.path).resolve().is_relative_to(self._root.resolve())
        return not outside and entry.name[0] != "." and entry.name.isprintable()

    def _changed(self, name: str) -> float:
        try:
            return os.stat(self._root / name / RUN_FILE).st_mtime
        except OSError:
            return 0.0

    def _summary(self, name: str) -> RunSummary:
        signature = self._signature(name)
        known = self._known.get(name)
        if known is None or known[0] != signature or known[1].state in GOING_ON:
            known = self._known[name] = (signature, summary_of(self._root / name))
        return known[1]

    def _signature(self, name: str) -> object:
        try:
            found = os.stat(self._root / name / INDEX_FILE)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size


def _row(name: str, run: RunSummary) -> dict[str, Any]:
    return {
        "folder": name,
        "name": clean(run.name),
        "started": clean(run.started)[:16].replace("T", " "),
        "command": clean(run.command, length_max=200),
        "state": clean(run.state),
        "steps": run.steps,
        "worst": run.worst,
        "incidents": run.incidents,
    }
