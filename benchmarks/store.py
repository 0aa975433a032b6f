"""What the store costs at 10,000 tensors and 1,000,000 steps: appends, bytes, one series, one question, retention.

The writers are those that a run uses: the scalars of every step, and the norm of every gradient, random numbers. All
of them would be 40 GB, so two things are done that change nothing in what is there at the end
(tests/storage/test_retention.py proves it of thinning). Before the last ``DENSE_STEPS`` only every tenth step has its
norms written, the one that retention keeps of ten anyway. And what the background thread does in a run, ``keep_run``,
is done here in between, every ``LOOK_STEPS`` steps and without its rests. In a run it looks every few seconds, which
writes the newest steps once more: ``--steps 20000 --look 1000`` shows what that costs.

Series are read warm (from the page cache, the best of three) and cold (after the kernel was told to drop the files), of
rows drawn at random. The last part measures a loop that trains nothing, alone and beside the background thread.

    python benchmarks/store.py               # about three minutes, 3 GB of disk
    python benchmarks/store.py --quick       # a smoke test: few tensors and steps, numbers without meaning
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from steadytrain.core.model import Reading
from steadytrain.storage import compaction
from steadytrain.storage.query import ask
from steadytrain.storage.retention import Keeper, keep_run
from steadytrain.storage.run_folder import Run, RunWriter, open_run
from steadytrain.storage.segments import SegmentWriter, StepRecord
from steadytrain.storage.tables import TableWriter
from steadytrain.storage.thinning import FACTOR

TENSORS, STEPS = 10_000, 1_000_000
QUICK = (200, 20_000)
LOOK_STEPS = 25_000
DENSE_STEPS = 100_000
SERIES_READ = 30
NOTHING = np.zeros(0, np.float32)

SERIES_MS_MAX = 50.0
APPEND_US_MAX = 200.0
SCALARS_US_MAX = 30.0
BYTES_SHARE_MAX = 0.05

QUESTIONS = {
    "loss of the last 1,000 steps": "SELECT step, loss FROM steps ORDER BY step DESC LIMIT 1000",
    "one tensor's series": "SELECT step, norm FROM gradients WHERE name = '{name}' ORDER BY step",
    "ten largest norms of a step": "SELECT name, norm FROM gradients WHERE step = {step} ORDER BY norm DESC LIMIT 10",
    "mean of every tensor": "SELECT name, avg(norm) FROM gradients GROUP BY name ORDER BY 2 DESC LIMIT 10",
}


@dataclass
class Times:
    """Seconds of single calls."""

    seconds: list[float] = field(default_factory=list)
    processor: float = 0.0

    @contextmanager
    def one(self) -> Iterator[None]:
        start, processor = time.perf_counter(), time.process_time()
        yield
        self.seconds.append(time.perf_counter() - start)
        self.processor += time.process_time() - processor

    def text(self, unit: str) -> str:
        factor = {"us": 1e6, "ms": 1e3}[unit]
        median, worst = statistics.median(self.seconds) * factor, max(self.seconds) * factor
        return f"{median:,.1f} {unit} (worst {worst:,.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smoke test")
    parser.add_argument("--steps", type=int, help=f"default: {STEPS:,}")
    parser.add_argument("--look", type=int, default=LOOK_STEPS, help="steps between two looks of retention")
    parser.add_argument("--folder", type=Path, help="where to write (default: a temporary folder)")
    options = parser.parse_args()
    tensors, steps = QUICK if options.quick else (TENSORS, options.steps or STEPS)
    folder = Path(tempfile.mkdtemp(prefix="steadytrain-bench-", dir=options.folder))
    try:
        failures = measure(folder / "run", tensors, steps, min(options.look, steps))
        beside(folder / "beside", 2_000 if options.quick else 12_000)
    finally:
        shutil.rmtree(folder)
    if failures and not options.quick:
        sys.exit("bench: out of bounds: " + ", ".join(failures))


def measure(path: Path, tensors: int, steps: int, look: int) -> list[str]:
    """Write a run, look at it, print the table; what is out of its bound."""
    print(
        f"{tensors:,} tensors, {steps:,} steps; {date.today()}, {_machine()}, load {os.getloadavg()[0]:.1f}\n",
        flush=True,
    )
    names = tuple(f"model.layers.{index // 12}.block.projection_{index % 12}.weight" for index in range(tensors))
    scalars, norms, retention, peak = write(path, names, steps, look)
    run = open_run(path)
    raw = steps * (24 + 4 * tensors)
    kept, kept_scalars = _size(path / "tables"), _size(path / "steps")
    files = sum(1 for _ in (path / "tables").rglob("*.*"))
    readings = len(run.series("gradients", names[0], "norm"))
    warm, cold = series_times(run, names)
    answers = question_times(run, names, steps)
    share = BYTES_SHARE_MAX if steps >= STEPS else None  # a short run is kept whole
    bounds = [
        ("append, scalars of a step", scalars.text("us"), statistics.median(scalars.seconds) * 1e6, SCALARS_US_MAX),
        ("append, norms of a step", norms.text("us"), statistics.median(norms.seconds) * 1e6, APPEND_US_MAX),
        ("norms as written", f"{raw / steps:,.0f} bytes a step, {raw / 1e9:,.1f} GB", None, None),
        ("norms as kept", f"{kept / steps:,.0f} bytes a step, {kept / 1e9:,.2f} GB", kept / raw, share),
        ("largest on the way", f"{peak / 1e9:,.2f} GB", None, None),
        ("readings kept, files", f"{readings:,} of {steps:,}, {files} files", None, None),
        ("scalars as kept", f"{kept_scalars / steps:,.0f} bytes a step, {kept_scalars / 1e6:,.0f} MB", None, None),
        (f"retention, a look every {look:,} steps", retention.text("ms"), None, None),
        ("retention, processor time", f"{1e6 * retention.processor / len(norms.seconds):,.0f} us a step", None, None),
        ("one series, warm", warm.text("ms"), statistics.median(warm.seconds) * 1e3, SERIES_MS_MAX),
        ("one series, processor time", f"{1e3 * warm.processor / SERIES_READ:,.1f} ms", None, None),
        ("one series, cold", cold.text("ms"), None, None),
        *((f"question: {what}", times.text("ms"), None, None) for what, times in answers.items()),
        ("memory of this process", f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MB", None, None),
    ]
    failures = []
    for what, text, value, bound in bounds:
        fits = value is None or bound is None or value <= bound
        failures += [] if fits else [what]
        print(f"{what:40} {text:38} {'' if bound is None else f'bound {bound:g}' + ('' if fits else '  FAILED')}")
    return failures


def write(path: Path, names: tuple[str, ...], steps: int, look: int) -> tuple[Times, Times, Times, int]:
    """The whole run; times of appends and of retention, and the most that was on disk."""
    RunWriter(path, {"name": path.name}).close()
    segments = SegmentWriter(path / "steps" / "main", stream="main")
    table = TableWriter(path / "tables" / "main", "gradients")
    scalars, norms, retention, peak = Times(), Times(), Times(), 0
    draw = _random_norms(len(names))
    known, seen = {}, {}
    for step in range(1, steps + 1):
        now = 1.79e9 + step
        record = StepRecord(step, now, {"loss": 1 / step, "gradient_norm": 1.0, "step_s": 0.1}, NOTHING)
        with scalars.one():
            segments.append(record, ())
        if step % FACTOR == 0 or step > steps - DENSE_STEPS:
            reading = Reading("gradients", names, ("norm",), draw())
            with norms.one():
                table.append(step, now, reading)
        if step % look == 0:
            peak = max(peak, _size(path))
            with retention.one():
                keep_run(path, known, seen, lambda: True)
    segments.close()
    table.close()
    return scalars, norms, retention, peak


def series_times(run: Run, names: tuple[str, ...]) -> tuple[Times, Times]:
    """Reading one series of a fresh row each time, warm and cold."""
    warm, cold = Times(), Times()
    picked = random.Random(7).sample(names, SERIES_READ)
    for name in picked:
        tries = Times()
        for _ in range(4):
            with tries.one():
                run.series("gradients", name, "norm")
        warm.seconds.append(min(tries.seconds[1:]))
        warm.processor += tries.processor / 4
    for name in picked[:10]:
        _drop_from_cache(run.path)
        with cold.one():
            run.series("gradients", name, "norm")
    return warm, cold


def question_times(run: Run, names: tuple[str, ...], steps: int) -> dict[str, Times]:
    found = {}
    for what, sql in QUESTIONS.items():
        times = found[what] = Times()
        for _ in range(3):
            with times.one(), ask([run], sql.format(name=names[77], step=steps - steps % 1000)) as answer:
                list(answer.rows)
    return found


def beside(path: Path, steps: int) -> None:
    """A loop of Python and NumPy alone, and with the background thread at work: to raw parts, and to Parquet."""
    alone = _turns(lambda: False, 2_000)
    print(f"\nA loop alone: {_turn_text(alone)}")
    for form, bytes_min in (("raw", compaction.COLUMNAR_BYTES_MIN), ("Parquet", 0)):
        run = path / form
        _write_tensors(run, steps)
        compaction.COLUMNAR_BYTES_MIN = bytes_min
        errors: list[Exception] = []
        keeper = Keeper(run, errors.append)
        before = _size(run)
        keeper.start()
        works = _turns(partial(_is_smaller, run, before / 3), 60_000)
        keeper.close()
        assert not errors, errors
        done = f"{before / 1e6:,.0f} MB become {_size(run) / 1e6:,.0f} MB {form} in {sum(works.seconds):.1f} s"
        print(f"The same while {done}: {_turn_text(works)}")


def _write_tensors(run: Path, steps: int) -> None:
    names = tuple(f"layers.{index}.weight" for index in range(200))
    columns = tuple(f"statistic_{index}" for index in range(20))
    values = np.random.default_rng(1).normal(size=(len(names), len(columns))).astype(np.float32)
    RunWriter(run, {"name": run.name}).close()
    table = TableWriter(run / "tables" / "main", "tensors")
    for step in range(1, steps + 1):
        table.append(step, float(step), Reading("tensors", names, columns, values))
    table.close()


def _is_smaller(run: Path, size: float) -> bool:
    return _size(run) < size


def _turn_text(times: Times) -> str:
    return f"{times.text('ms')} a turn, 99th percentile {np.percentile(times.seconds, 99) * 1e3:.2f} ms"


def _turns(is_over: Callable[[], bool], turns: int) -> Times:
    times, block = Times(), np.random.default_rng(2).normal(size=(64, 64))
    for turn in range(turns):
        with times.one():
            for _ in range(12):
                block = np.tanh(block @ block.T / 64)
                sum(range(300))
        if turn % 200 == 0 and is_over():
            break
    return times


def _random_norms(tensors: int) -> Callable[[], NDArray[np.float32]]:
    """Steps that compress as badly as real ones: noise around a value of each tensor's own.

    To draw it anew would take longer than to write it, so every step takes its noise from another place of a store.
    """
    random_numbers = np.random.default_rng(0)
    level = np.exp(random_numbers.normal(0, 2, tensors)).astype(np.float32)
    noise = np.exp(random_numbers.normal(0, 0.3, 1_000 * tensors)).astype(np.float32)
    places = random.Random(0)

    def draw() -> NDArray[np.float32]:
        start = places.randrange(len(noise) - tensors)
        return (level * noise[start : start + tensors])[:, None]

    return draw


def _drop_from_cache(path: Path) -> None:
    for file in path.rglob("*"):
        if file.is_file():
            handle = os.open(file, os.O_RDONLY)
            try:
                os.fsync(handle)
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(handle)


def _size(path: Path) -> int:
    size = 0
    for file in path.rglob("*"):
        try:
            size += file.stat().st_size if file.is_file() else 0
        except FileNotFoundError:
            continue  # replaced in between
    return size


def _machine() -> str:
    processor = platform.machine()
    if Path("/proc/cpuinfo").exists():
        found = subprocess.run(
            ["grep", "-m1", "model name", "/proc/cpuinfo"], capture_output=True, text=True, check=False
        )
        processor = found.stdout.partition(":")[2].strip() or processor
    return f"{os.cpu_count()} cores, {processor}, Python {platform.python_version()}"


if __name__ == "__main__":
    main()
