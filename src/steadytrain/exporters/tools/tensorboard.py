"""TensorBoard: event files, written directly, without TensorFlow or torch.

Our own run is in ``<run folder>/tensorboard``. If the script has a ``SummaryWriter``, we write to the folder
``steadytrain`` under its log folder, never a second file next to its own: TensorBoard reads the files of a folder one
after the other and would stop following the script's.
"""

from __future__ import annotations

import io
import os
import socket
import threading
import time
from pathlib import Path
from typing import Any, ClassVar, final

from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, types_pb2
from tensorboard.summary.writer.record_writer import RecordWriter

from steadytrain.core.incident import Action, Incident
from steadytrain.core.model import Symptom
from steadytrain.exporters.exporter import (
    PREFIX,
    SEVERITY_LEVELS,
    ActiveRun,
    Exporter,
    Histogram,
    Row,
    Run,
    Tool,
    action_text,
    incident_text,
)
from steadytrain.storage.own_file import OwnStream

FOLDER = "tensorboard"
JOINED_FOLDER = "steadytrain"
_NAME = "events.out.tfevents.{time:010d}.{host}.{process}.steadytrain"


@final
class Tensorboard(Tool):
    """TensorBoard: event files in the run folder, or beside those of the script's own writer."""

    requires: ClassVar[str] = "tensorboard"
    install: ClassVar[str] = "steadytrain[tensorboard]"
    loaded: ClassVar[str] = "tensorboard.summary.writer.event_file_writer"

    def begin(self) -> Exporter:
        return TensorBoardExporter(folder=None, prefix="")

    def active(self) -> ActiveRun | None:
        """``handle`` is the folder of an open writer. A writer is found by its thread; the oldest is the main one."""
        for thread in threading.enumerate():
            kind = type(thread)
            if kind.__name__ != "_AsyncWriterThread" or not kind.__module__.startswith("tensorboard."):
                continue
            file = thread._record_writer._writer  # type: ignore[attr-defined]
            path = getattr(file, "filename", None) or getattr(file, "name", None)
            if path:
                folder = os.path.dirname(os.path.abspath(os.fsdecode(path)))
                return ActiveRun("tensorboard", folder, folder)
        return None

    def join(self, handle: Any) -> Exporter:
        return TensorBoardExporter(folder=Path(handle) / JOINED_FOLDER, prefix=PREFIX)


@final
class TensorBoardExporter(Exporter):
    """Scalars, histograms of the base-2 exponent, and texts. An event has the time of its step."""

    def __init__(self, *, folder: Path | None, prefix: str) -> None:
        self._folder = folder
        self._prefix = prefix
        self._writer: Any = None

    def open(self, run: Run) -> None:
        folder = self._folder or Path(run.folder) / FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        now = time.time()
        name = _NAME.format(time=int(now), host=socket.gethostname(), process=os.getpid())
        self._writer = RecordWriter(io.BufferedWriter(OwnStream(folder / name)))
        self._write(event_pb2.Event(wall_time=now, file_version="brain.Event:2"))
        facts = "\n".join(f"    {name}: {value}" for name, value in run.facts.items())  # an indented block of Markdown
        self._add(0, now, self._text("run", f"{run.name}, recorded in `{run.folder}`\n\n{facts}"))
        self.flush()

    def scalars(self, row: Row) -> None:
        values = [summary_pb2.Summary.Value(tag=f"{self._prefix}{n}", simple_value=v) for n, v in row.values.items()]
        self._add(row.step, row.time, *values)

    def histogram(self, histogram: Histogram) -> None:
        """The horizontal axis is the power of two."""
        bars, lefts, rights = histogram.bars, histogram.edges[:-1], histogram.edges[1:]
        filled = [position for position, bar in enumerate(bars) if bar]
        if not filled:
            return
        middles = [(left + right) / 2 for left, right in zip(lefts, rights, strict=True)]
        proto = summary_pb2.HistogramProto(
            min=lefts[filled[0]],
            max=rights[filled[-1]],
            num=sum(bars),
            sum=sum(bar * middle for bar, middle in zip(bars, middles, strict=True)),
            sum_squares=sum(bar * middle**2 for bar, middle in zip(bars, middles, strict=True)),
            bucket_limit=rights,
            bucket=bars,
        )
        tag = f"{self._prefix}{histogram.name}/log2"
        self._add(histogram.step, histogram.time, summary_pb2.Summary.Value(tag=tag, histo=proto))

    def symptom(self, symptom: Symptom) -> None:
        name = f"symptoms/{symptom.name}"
        level = summary_pb2.Summary.Value(tag=f"{self._prefix}{name}", simple_value=SEVERITY_LEVELS[symptom.severity])
        text = self._text(f"{name}/message", f"**{symptom.severity}**, step {symptom.first_step}: {symptom.message}")
        self._add(symptom.first_step, time.time(), level, text)

    def incident(self, path: Path, incident: Incident) -> None:
        self._add(incident.step, time.time(), self._text("incidents", incident_text(path, incident)))

    def action(self, action: Action) -> None:
        self._add(action.step, time.time(), self._text("actions", action_text(action)))

    def flush(self) -> None:
        self._writer.flush()

    def close(self, ended: str) -> None:
        self._add(0, time.time(), self._text("ended", ended))
        self._writer.close()

    def _text(self, name: str, text: str) -> Any:
        plugin = summary_pb2.SummaryMetadata.PluginData(plugin_name="text")
        tensor = tensor_pb2.TensorProto(
            dtype=types_pb2.DT_STRING, string_val=[text.encode("utf-8", "backslashreplace")]
        )
        metadata = summary_pb2.SummaryMetadata(plugin_data=plugin)
        return summary_pb2.Summary.Value(tag=f"{self._prefix}{name}", metadata=metadata, tensor=tensor)

    def _add(self, step: int, time: float, *values: Any) -> None:
        self._write(event_pb2.Event(wall_time=time, step=step, summary=summary_pb2.Summary(value=values)))

    def _write(self, event: Any) -> None:
        self._writer.write(event.SerializeToString())
