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
from collections.abc import Mapping
from itertools import pairwise
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
    Document,
    DocumentStore,
    Exporter,
    Histogram,
    Row,
    Run,
    Tool,
    action_text,
    as_block,
    incident_text,
    symptom_text,
)
from steadytrain.report.wording import clean
from steadytrain.storage.own_file import OwnStream

FOLDER = "tensorboard"
JOINED_FOLDER = "steadytrain"
SIGNED_BINS = 60
"""TensorBoard draws thirty bins."""

_NAME = "events.out.tfevents.{time:010d}.{host}.{process}.steadytrain"


@final
class Tensorboard(Tool):
    """TensorBoard: event files in the run folder, or beside those of the script's own writer."""

    requires: ClassVar[str] = "tensorboard"
    install: ClassVar[str] = "steadytrain[tensorboard]"
    loaded: ClassVar[str] = "tensorboard.summary.writer.event_file_writer"
    keeps_documents: ClassVar[bool] = True

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

    def documents(self, run: Run, place: Mapping[str, str] | None) -> DocumentStore:
        return TensorBoardDocuments(run, place)


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
        self.begin_file(folder, now)
        facts = [f"{clean(name)}: {clean(value)}" for name, value in run.facts.items()]
        self._add(0, now, self._text("run", "\n".join([f"{clean(run.name)}, recorded in {clean(run.folder)}", *facts])))
        self.flush()

    def begin_file(self, folder: Path, now: float) -> None:
        """Start a file of events in ``folder``."""
        name = _NAME.format(time=int(now), host=socket.gethostname(), process=os.getpid())
        self._writer = RecordWriter(io.BufferedWriter(OwnStream(folder / name)))
        self._write(event_pb2.Event(wall_time=now, file_version="brain.Event:2"))

    def place(self) -> Mapping[str, str]:
        return {"tool": "tensorboard", "prefix": self._prefix}

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
        values = [summary_pb2.Summary.Value(tag=f"{self._prefix}{histogram.name}/log2", histo=proto)]
        signed = histogram.signed(SIGNED_BINS)
        if signed is not None:
            tag = f"{self._prefix}{histogram.name}/values"
            values.append(summary_pb2.Summary.Value(tag=tag, histo=_signed(*signed)))
        self._add(histogram.step, histogram.time, *values)

    def symptom(self, symptom: Symptom) -> None:
        name = f"symptoms/{symptom.name}"
        level = summary_pb2.Summary.Value(tag=f"{self._prefix}{name}", simple_value=SEVERITY_LEVELS[symptom.severity])
        text = self._text(f"{name}/message", symptom_text(symptom))
        self._add(symptom.first_step, time.time(), level, text)

    def incident(self, path: Path, incident: Incident) -> None:
        self._add(incident.step, time.time(), self._text("incidents", incident_text(path, incident)))

    def action(self, action: Action) -> None:
        self._add(action.step, time.time(), self._text("actions", action_text(action)))

    def document(self, document: Document) -> None:
        """A document as text at its step."""
        self._add(document.step, time.time(), self._text(f"{document.kind}/{document.name}", document.text))

    def flush(self) -> None:
        self._writer.flush()

    def end_file(self) -> None:
        self._writer.close()

    def close(self, ended: str) -> None:
        self._add(0, time.time(), self._text("ended", ended))
        self.end_file()

    def _text(self, name: str, text: str) -> Any:
        """TensorBoard shows texts as Markdown."""
        plugin = summary_pb2.SummaryMetadata.PluginData(plugin_name="text")
        tensor = tensor_pb2.TensorProto(
            dtype=types_pb2.DT_STRING, string_val=[as_block(text).encode("utf-8", "backslashreplace")]
        )
        metadata = summary_pb2.SummaryMetadata(plugin_data=plugin)
        return summary_pb2.Summary.Value(tag=f"{self._prefix}{name}", metadata=metadata, tensor=tensor)

    def _add(self, step: int, time: float, *values: Any) -> None:
        self._write(event_pb2.Event(wall_time=time, step=step, summary=summary_pb2.Summary(value=values)))

    def _write(self, event: Any) -> None:
        self._writer.write(event.SerializeToString())


@final
class TensorBoardDocuments(DocumentStore):
    """Texts in a file beside that of the run, in the run folder: one that the script owned may be elsewhere by now."""

    def __init__(self, run: Run, place: Mapping[str, str] | None) -> None:
        self._folder = Path(run.folder) / FOLDER
        self._folder.mkdir(exist_ok=True)
        self._exporter = TensorBoardExporter(folder=self._folder, prefix="")
        if place is None or place.get("prefix"):
            self._exporter.open(run)
        else:
            self._exporter.begin_file(self._folder, time.time())

    def keep(self, document: Document) -> None:
        self._exporter.document(document)

    def close(self) -> str:
        self._exporter.end_file()
        return str(self._folder)


def _signed(heights: list[float], edges: list[float]) -> Any:
    """A histogram over the values themselves."""
    middles = [(left + right) / 2 for left, right in pairwise(edges)]
    return summary_pb2.HistogramProto(
        min=edges[0],
        max=edges[-1],
        num=sum(heights),
        sum=sum(height * middle for height, middle in zip(heights, middles, strict=True)),
        sum_squares=sum(height * middle**2 for height, middle in zip(heights, middles, strict=True)),
        bucket_limit=edges[1:],
        bucket=heights,
    )
