"""What `steadytrain top` costs: one picture of a million steps, and following a run that writes 100 steps a second.

``make bench-top`` prints a table. The runs are written by the storage's own writers, in a temporary folder.
"""

from __future__ import annotations

import argparse
import platform
import resource
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path

import numpy as np

from steadytrain.core.model import Reading
from steadytrain.live.drawing import Frame, lines_of
from steadytrain.live.follower import RunFollower
from steadytrain.live.view import View
from steadytrain.storage.run_folder import RunWriter
from steadytrain.storage.segments import SegmentWriter, StepRecord
from steadytrain.storage.tables import TableWriter

STEPS = 1_000_000
TENSORS = 500
RATE = 100
FOLLOWED_S = 60
NO_TENSORS = np.zeros(0, np.float32)


class Run:
    def __init__(self, path: Path) -> None:
        RunWriter(path, {"name": path.name, "started": "2026-11-25T00:00:00+00:00"}).close()
        self._steps = SegmentWriter(path / "steps" / "main", stream="main")
        self._gradients = TableWriter(path / "tables" / "main", "gradients")
        self._names = tuple(f"blocks.{index}.weight" for index in range(TENSORS))
        self._random = np.random.default_rng(0)

    def write(self, step: int, now: float, *, norms: bool) -> None:
        loss = 2 + 6 * float(np.exp(-step / 1000)) + float(self._random.normal(0, 0.05))
        scalars = {"loss": loss, "gradient_norm": 1 + loss / 9, "learning_rate": 3e-4, "step_s": 0.01}
        self._steps.append(StepRecord(step, now, scalars, NO_TENSORS), ())
        if norms:
            values = self._random.random((TENSORS, 1), np.float32)
            self._gradients.append(step, now, Reading("gradients", self._names, ("norm",), values))


def first_look(path: Path) -> tuple[float, float]:
    """Seconds of a processor and megabytes at the most for one picture, in a process of its own."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, __file__, "--follow", str(path), "--seconds", "0"], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, after.ru_maxrss / 1024


def follow(path: Path, seconds: float) -> None:
    """The work of ``top`` without the terminal: a poll and a drawing a second. Prints its share of a processor."""
    follower = RunFollower(path)
    began: tuple[float, float] | None = None
    while True:
        lines_of(follower.poll(time.time()), View(), Frame(120, 40))
        began = began or (time.process_time(), time.monotonic())
        passed = time.monotonic() - began[1]
        if passed >= seconds:
            break
        time.sleep(1.0)
    if seconds:
        used = time.process_time() - began[0]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{used / passed:.4f} {peak:.0f}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--follow", type=Path)
    parser.add_argument("--seconds", type=float, default=FOLLOWED_S)
    parser.add_argument("--steps", type=int, default=STEPS)
    options = parser.parse_args()
    if options.follow is not None:
        follow(options.follow, options.seconds)
        return
    with tempfile.TemporaryDirectory() as folder:
        print(f"{platform.processor() or platform.machine()}, {datetime.now(timezone.utc):%Y-%m-%d}")
        print("\n| what | processor | memory at most |\n|---|---|---|")
        for steps in (1_000, options.steps):
            run = Run(Path(folder) / f"run-{steps}")
            for step in range(1, steps + 1):
                run.write(step, step * 0.01, norms=step > steps - 100)
            used, peak = first_look(Path(folder) / f"run-{steps}")
            print(f"| first picture of {steps:,} steps, with the start of Python | {used:.2f} s | {peak:.0f} MiB |")
        live = Path(folder) / "live"
        run = Run(live)
        run.write(1, time.time(), norms=True)
        words = [sys.executable, __file__, "--follow", str(live), "--seconds", str(options.seconds)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as following:
            step = 1
            while following.poll() is None:
                step += 1
                run.write(step, time.time(), norms=True)
                time.sleep(1 / RATE)
            assert following.stdout is not None
            share, peak_text = following.stdout.read().split()
        what = f"following {RATE} steps/s of {TENSORS} tensors, a picture a second"
        print(f"| {what} | {100 * float(share):.1f} % of a core | {peak_text} MiB |")


if __name__ == "__main__":
    main()
