"""What the detectors cost beside training: processor time of `Books.look` in each step, with all that it calls.

A run of 2,048 steps in memory with 200 tensors (gradient norms of the last 512 steps) and readings of the tables
`tensors` and `modules`, every 50 steps as at level "standard", or every step as near a symptom. Nothing is trained and
nothing is written to disk but symptoms. Healthy numbers first, then with a fault whose symptoms grow at every look.

    python benchmarks/looking.py                # half a minute
    python benchmarks/looking.py --quick        # a smoke test: numbers without meaning
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np

from steadytrain.capture.hooks.fail_open import Guard
from steadytrain.capture.settings import Settings
from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.capture.tensors.activations import COLUMNS as MODULE_COLUMNS
from steadytrain.capture.tensors.statistics.tensor_columns import COLUMNS as TENSOR_COLUMNS
from steadytrain.core.model import Reading
from steadytrain.detection.run_recorder import RunRecorder
from steadytrain.detection.sink import NoSink
from steadytrain.detection.step_history import StepHistory
from steadytrain.detectors import Detector
from steadytrain.grouping.catalog import detector_name, detectors
from steadytrain.storage.segments import StepRecord
from steadytrain.testing import healthy_loss

TENSORS, MODULES = 200, 120
NAMES = tuple(f"blocks.{row // 8}.part{row % 8}.weight" for row in range(TENSORS))
WARM_STEPS = 2048
STEP_MS_MAX = 0.2
"""Issue 4: all detectors together, a step."""


@dataclass(frozen=True)
class Case:
    """Steps to measure; ``every`` steps a reading of each table; ``rise`` nats a step on the loss, from the first."""

    name: str
    every: int
    rise: float = 0.0


CASES = (
    Case("healthy, tables every 50 steps", 50),
    Case("healthy, tables every 8 steps", 8),
    Case("healthy, tables every step", 1),
    Case("a loss that drifts up, tables every step", 1, rise=0.02),
)


def records(count: int, case: Case, *, faulty_from: int) -> Iterator[tuple[StepRecord, list[Reading]]]:
    """Plausible steps, with noise in every number that a detector reads."""
    draw = np.random.default_rng(0)
    loss = healthy_loss(count, decay_steps=300)
    rate = np.linspace(1e-3, 1e-4, count)
    levels = 10.0 ** draw.uniform(-3, 0, TENSORS)
    for step in range(1, count + 1):
        rise = case.rise * max(0, step - faulty_from)
        norms = (levels * draw.lognormal(0, 0.2, TENSORS)).astype(np.float32)
        norm = float(np.sqrt((norms.astype(np.float64) ** 2).sum()))
        scalars = {
            "loss": float(loss[step - 1]) + rise,
            "gradient_norm": norm,
            "gradient_norm_applied": min(norm, 1.0),
            "clip_coefficient": min(1.0, 1.0 / norm),
            "learning_rate": float(rate[step - 1]),
            "samples": 32.0,
            "tokens": 8192.0,
            "step_s": 0.1 * float(draw.lognormal(0, 0.05)),
            "loss_scale": 65536.0,
            "scaler_skips": 0.0,
            "overflow_share": 0.0,
        }
        readings = [_tensors(draw, levels), _modules(draw)] if step % case.every == 0 else []
        yield StepRecord(step, float(step), scalars, norms), readings


def _tensors(draw: np.random.Generator, levels: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Reading:
    columns = tuple(TENSOR_COLUMNS)
    values = np.zeros((TENSORS, len(columns)), np.float32)
    of = {name: position for position, name in enumerate(columns)}
    noise = draw.lognormal(0, 0.1, TENSORS)
    for name in columns:
        if name.endswith(("norm", "rms", "max", "std", "second_moment")):
            values[:, of[name]] = noise
    values[:, of["gradient_norm"]] = levels * noise
    values[:, of["update_norm"]] = 1e-3 * noise
    values[:, of["weight_norm"]] = 10.0
    if "update_ratio" in of:
        values[:, of["update_ratio"]] = 1e-3 * noise
    return Reading(
        "tensors", tuple(f"blocks.{row // 8}.part{row % 8}.weight" for row in range(TENSORS)), columns, values
    )


def _modules(draw: np.random.Generator) -> Reading:
    columns = tuple(MODULE_COLUMNS)
    values = np.full((MODULES, len(columns)), np.nan, np.float32)
    of = {name: position for position, name in enumerate(columns)}
    for name, level in (("std", 1.0), ("abs_max", 6.0), ("zero_share", 0.1), ("nonfinite", 0.0), ("headroom", 20.0)):
        if name in of:
            values[:, of[name]] = level * draw.lognormal(0, 0.05, MODULES)
    for name, level in (("attention_logit_max", 8.0), ("attention_entropy", 3.0), ("log_z_mean", 5.0)):
        if name in of:
            values[::10, of[name]] = level * draw.lognormal(0, 0.05, len(values[::10]))
    return Reading("modules", tuple(f"blocks.{row // 8}.part{row % 8}" for row in range(MODULES)), columns, values)


def measure(case: Case, looking: list[Detector], folder: Path, steps: int) -> tuple[list[float], int]:
    """Milliseconds of the processor in ``RunRecorder.look`` in each step, and the symptoms on record at the end."""
    recorder = RunRecorder(Settings(folder, "looking"), Guard(print), print, looking, NoSink())
    recorder.begin()
    stream = Stream("main", StepHistory(stream="main"))
    spent = []
    for record, readings in records(WARM_STEPS + steps, case, faulty_from=WARM_STEPS):
        stream.history.append(record, NAMES)
        stream.step = record.step
        for reading in readings:
            stream.history.read(record.step, record.time, reading)
        if record.step <= WARM_STEPS:
            continue
        began = time.thread_time()
        recorder.look(stream)
        spent.append(1000 * (time.thread_time() - began))
    return spent, len(recorder.symptoms)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--each", action="store_true", help="also every detector by itself")
    arguments = parser.parse_args()
    steps = 64 if arguments.quick else 1024
    print(f"{date.today()}, {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, ", end="")
    print(f"NumPy {np.__version__}; {TENSORS} tensors, {MODULES} modules, {len(detectors())} detectors\n")
    print("| run | ms a step, mean | median step | longest step | symptoms |\n|---|---|---|---|---|")
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            spent, seen = measure(case, list(detectors()), Path(folder) / "run", steps)
        mean = sum(spent) / len(spent)
        over = "" if mean <= STEP_MS_MAX else f" (over {STEP_MS_MAX})"
        print(f"| {case.name} | {mean:.3f}{over} | {statistics.median(spent):.2f} | {max(spent):.2f} | {seen} |")
    if arguments.each:
        print("\n| detector | ms a look |\n|---|---|")
        for detector in detectors():
            with tempfile.TemporaryDirectory() as folder:
                spent, _ = measure(CASES[2], [detector], Path(folder) / "run", steps)
            print(f"| {detector_name(type(detector))} | {16 * sum(spent) / len(spent):.3f} |")


if __name__ == "__main__":
    main()
