"""MLflow's file store, read directly: ``mlruns/EXPERIMENT/RUN/metrics/NAME`` with lines of time, value and step."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import ClassVar, final

from steadytrain.core.bounded_files import read_bytes
from steadytrain.core.errors import UsageError
from steadytrain.logs.log_runs import logs_of
from steadytrain.logs.metric_points import Points, rows_of
from steadytrain.logs.numerals import counted
from steadytrain.logs.reader import Columns, Log, Reader, Tell
from steadytrain.logs.text_files import blocks

METRICS = "metrics"
META = "meta.yaml"
METRIC_FILES_MAX = 2_000
META_BYTES_MAX = 1 << 20
_MILLISECOND = 1e-3


@final
class MlflowFiles(Reader):
    """A file store of MLflow: ``mlruns``, or an experiment or a run in it."""

    kind = "mlflow"
    whole_folder = True
    in_folders: ClassVar[tuple[str, ...]] = ()

    def claims(self, path: Path, head: bytes) -> bool:
        return not head and (path / META).is_file() and (path / METRICS).is_dir()

    def read(self, path: Path, columns: Columns, tell: Tell) -> tuple[Log, ...]:
        meta = _meta(path / META)
        if meta.get("lifecycle_stage") == "deleted":
            raise UsageError(f"{path}: this run of MLflow was deleted")
        metrics: dict[str, Points] = {}
        broken = 0
        for file in _metric_files(path / METRICS):
            name = file.relative_to(path / METRICS).as_posix()
            metrics[name], bad = _points(file, tell)
            broken += bad
        if not any(len(points.steps) for points in metrics.values()):
            raise UsageError(f"{path}: this run of MLflow has no metrics")
        notes = [f"{counted(broken, 'line')} of metrics skipped: not time, value and step."] if broken else []
        name = meta.get("run_name") or path.absolute().name
        return logs_of(rows_of(metrics), columns, path=path, kind=self.kind, name=name, notes=notes)


def _metric_files(folder: Path) -> list[Path]:
    found = [Path(place) / name for place, _, files in os.walk(folder) for name in files]
    return sorted(found)[:METRIC_FILES_MAX]


def _points(path: Path, tell: Tell) -> tuple[Points, int]:
    points, broken = Points(), 0
    for lines in blocks(path, tell):
        for line in lines:
            if not line:
                continue
            parts = line.split(" ")
            try:
                points.add(
                    int(parts[2]) if len(parts) > 2 else len(points.steps),
                    float(parts[1]),
                    int(parts[0]) * _MILLISECOND,
                )
            except (ValueError, IndexError, OverflowError):
                broken += 1
    return points, broken


def _meta(path: Path) -> dict[str, str]:
    """The plain entries of ``meta.yaml``, which is a flat list."""
    try:
        text = read_bytes(path, bytes_max=META_BYTES_MAX).decode("utf-8", errors="replace")
    except (OSError, UsageError):
        return {}
    return {name: value.strip("'\" ") for name, value in re.findall(r"^(\w+):[ ]*(.*)$", text, re.MULTILINE)}
