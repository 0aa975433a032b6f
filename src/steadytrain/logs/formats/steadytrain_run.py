"""A run folder of steadytrain. Each of its step streams is a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import ClassVar, final

import numpy as np

from steadytrain.core.errors import UsageError
from steadytrain.core.model import Window
from steadytrain.logs.reader import Columns, Log, Reader, Tell
from steadytrain.storage.run_folder import RUN_FILE, Run, open_run

MAIN = "main"


@final
class SteadytrainRun(Reader):
    """A run folder of steadytrain."""

    kind = "steadytrain"
    whole_folder = True
    in_folders: ClassVar[tuple[str, ...]] = ()

    def claims(self, path: Path, head: bytes) -> bool:
        return not head and (path / RUN_FILE).is_file() and (path / "steps").is_dir()

    def read(self, path: Path, columns: Columns, tell: Tell) -> tuple[Log, ...]:
        record = open_run(path)
        logs = []
        for stream in record.streams():
            window = _window(record, stream)
            if len(window):
                name = record.name if stream == MAIN else f"{record.name} {stream}"
                logs.append(Log(name, path, self.kind, window, _notes(window)))
        if not logs:
            raise UsageError(f"{path}: this run has no steps yet")
        return tuple(logs)


def _window(record: Run, stream: str) -> Window:
    window = record.window(stream)
    tables = {name: record.table(name, stream) for name in record.tables(stream) if name != "gradients"}
    numbers = {name: float(value) for name, value in record.facts.items() if isinstance(value, (int, float))}
    return replace(window, tables={**window.tables, **tables}, facts={**window.facts, **numbers})


def _notes(window: Window) -> tuple[str, ...]:
    gaps = int((np.diff(window.steps) > 1).sum())
    return (f"{gaps:,} gaps between its steps: older ones were thinned.",) if gaps else ()
