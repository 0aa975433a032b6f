"""Attack: a folder of 5,000 runs, and runs of up to a million steps; what ``runs`` and ``show`` take, imports included.

Each figure is the best of three processes, in seconds of the wall clock and of the processor.

    python benchmarks/attack_listing.py [--runs 5000] [--folder FOLDER]
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import builders
from steadytrain.storage.run_summaries import keep_summary

RUNS = 5_000
TIMES = 3
LISTING_S_MAX = 2.0
SHOW_S_MAX = {1_000: 0.3, 100_000: 0.3, 1_000_000: 1.0}


def seconds(*words: str) -> tuple[float, float]:
    """Wall-clock and processor seconds of a command, the best of ``TIMES``."""
    found = []
    for _ in range(TIMES):
        begin, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "steadytrain", *words], check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        found.append((time.perf_counter() - begin, processor))
    return min(wall for wall, _ in found), min(processor for _, processor in found)


def long_run(path: Path, steps: int) -> Path:
    """A run of ``steps`` steps, with the records of one segment of a thousand repeated under new numbers."""
    import numpy as np

    from steadytrain.storage.segments import fill_record, read_schema, schema_dtype

    run = builders.quiet_run(path)
    segment = sorted((run / "steps" / "main").glob("*.steps"))[0]
    rows = np.fromfile(segment, schema_dtype(read_schema(segment.with_suffix(".json"))))
    records = builders.records(1_000)
    with segment.open("wb") as file:
        buffer = rows[:1].copy()
        for step in range(steps):
            record = records[step % 1_000]
            fill_record(buffer, type(record)(step + 1, record.time + step, record.scalars, record.gradient_norms))
            file.write(buffer.tobytes())
    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--folder", type=Path, help="where to write (default: a temporary folder)")
    options = parser.parse_args()
    failed = False
    print(f"load {os.getloadavg()[0]:.1f}\n\n| what | wall s | processor s | bound |\n|---|---|---|---|")

    def measured(what: str, bound: float, *words: str) -> None:
        nonlocal failed
        wall, processor = seconds(*words)
        failed = failed or processor > bound
        print(f"| {what} | {wall:.2f} | {processor:.2f} | {bound:g} |", flush=True)

    with tempfile.TemporaryDirectory(prefix="steadytrain-listing-", dir=options.folder) as place:
        # As installed: pip compiles a package, a checkout may be told not to.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = str(Path(place) / "bytecode")
        one, folder = builders.bad_run(Path(place) / "one"), Path(place) / "runs"
        keep_summary(one)  # as a run does at its end
        for number in range(options.runs):
            shutil.copytree(one, folder / f"run-{number:05d}")
        measured(f"runs, {options.runs:,} runs", LISTING_S_MAX, "runs", "--runs-dir", str(folder))
        measured("show, newest of them", SHOW_S_MAX[1_000], "show", "--runs-dir", str(folder))
        for steps, bound in SHOW_S_MAX.items():
            run = long_run(Path(place) / f"steps-{steps}", steps)
            measured(f"show, {steps:,} steps", bound, "show", str(run))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
