"""A run as capture hands it to a sink: what the tests of every exporter send, and the facts they look for."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from builders import DESCRIPTION, FACTS, TENSORS, incident, records, symptom, write_bundle
from steadytrain.core.model import Reading
from steadytrain.exporters import exporter_queue
from steadytrain.exporters.run_exports import Exports
from steadytrain.storage.segments import StepRecord

STEPS = 120
BINS = ("zero", "below", *(f"2^{exponent}" for exponent in range(-40, 24)), "above", "nonfinite")
SECRET = "hf_abcdefghijklmnopqrstuvwx"
RUN: dict[str, Any] = {**DESCRIPTION, **FACTS, "argv": ["train.py", "--hub-token", SECRET]}


def histogram_reading() -> Reading:
    """Two tensors: 1/4 zeros, 1/2 in [1/4, 1/2) and 1/4 in [1/2, 1) each; the third was not measured.

    Of the gradient the elements from 1/2 on are positive, and the others are not.
    """
    values = np.zeros((4, len(BINS)), np.float32)
    values[:, BINS.index("zero")] = 0.25
    values[:, BINS.index("2^-2")] = 0.5
    values[:, BINS.index("2^-1")] = 0.25
    values[2] = np.nan
    values[3] = 0.0
    values[3, [BINS.index("zero"), BINS.index("2^-1")]] = 0.75, 0.25
    rows = ("gradient:head.weight", "weight:head.weight", "activation:head", "gradient+:head.weight")
    return Reading("histograms", rows, BINS, values)


def machine_reading() -> Reading:
    values = np.array([[4e9, np.nan], [np.nan, 61.0]], np.float32)
    return Reading("machine", ("host", "cuda:0"), ("process_memory_bytes", "temperature_c"), values)


def feed(run_dir: Path, to: Sequence[str], *, told: list[str] | None = None, **run: Any) -> None:
    """Hand a whole run over: ``STEPS`` steps of which the last is bad, tables, a symptom and its incident."""
    run_dir.mkdir(parents=True, exist_ok=True)
    exports = Exports(to, tell=(told if told is not None else []).append)
    exports.open(run_dir, {**RUN, "name": run_dir.name, **run})
    for record in records(STEPS, nan_at=STEPS):
        exports.step("main", record, TENSORS)
    exports.reading("main", 100, record.time, histogram_reading())
    exports.reading("main", 100, record.time, machine_reading())
    exports.symptom(symptom(STEPS))
    exports.symptom(symptom(STEPS, last=STEPS + 5))
    frozen = incident(STEPS)
    exports.incident(write_bundle(run_dir / "incidents" / f"step-{STEPS:06d}", frozen), frozen)
    exports.close("stopped")


def handed_over(exports: Exports) -> None:
    """Wait until every outlet has handed over what waits, and has flushed it: the next batch comes after that."""
    for _ in range(2):
        for feed in list(exports._feeds.values()):
            done = threading.Event()
            feed.outlet.put(lambda exporter, done=done: done.set())
            while feed.outlet.alive and not done.wait(0.05):
                pass


def followed(to: Sequence[str], *, folder: str = ".", with_incident: bool = False) -> Iterator[StepRecord]:
    """For a script with a run of its own: the steps of its loop, each of which is sent ``to`` when its body is done.

    The loop waits sometimes until all has been handed over, as it is by then in a loop of ordinary speed.
    """
    exporter_queue.FLUSH_EVERY_S = 0.05
    run_dir = Path(folder, "run").absolute()
    run_dir.mkdir()
    exports = Exports(to, tell=print)
    exports.open(run_dir, {**RUN, "name": "run"})
    for record in records(STEPS):
        yield record
        exports.step("main", record, TENSORS)
        if record.step == 60:
            exports.reading("main", 60, record.time, histogram_reading())
        if record.step in (20, 60, 90):
            handed_over(exports)
    if with_incident:
        exports.step("main", records(STEPS + 1, nan_at=STEPS + 1)[-1], TENSORS)
        exports.symptom(symptom(STEPS))
        frozen = incident(STEPS)
        exports.incident(write_bundle(run_dir / "incidents" / f"step-{STEPS:06d}", frozen), frozen)
    exports.close("finished")
