"""What ``steadytrain repro`` makes of every non-finite case of the zoo: lines, kilobytes, seconds, as a table.

Each script is run under ``steadytrain run``, then ``steadytrain repro`` is timed by the clock, all in fresh processes,
one after another. The script that comes out is run once more, by ``--python``: an interpreter with nothing but torch.

Run by ``make bench-repro``; about fifteen minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

ZOO = Path(__file__).parents[1] / "zoo" / "nonfinite"
LINES_MAX, KB_MAX, SECONDS_MAX = 40, 100, 60
FAILED = 70
WORDS_OF_AN_ERROR = 300


@dataclass
class Row:
    script: str
    operations: str
    produced: str
    lines: int
    kilobytes: float
    seconds: float
    clean: str
    """Exit status and last line of the script by itself; why there is none."""

    @property
    def is_within(self) -> bool:
        return self.lines <= LINES_MAX and self.kilobytes <= KB_MAX and self.seconds <= SECONDS_MAX

    def __str__(self) -> str:
        lines, kilobytes = (f"{self.lines}", f"{self.kilobytes:.1f}") if self.lines else ("", "")
        cells = [
            f"`{self.script}`",
            self.operations,
            self.produced,
            lines,
            kilobytes,
            f"{self.seconds:.0f}",
            self.clean,
        ]
        return "| " + " | ".join(cells) + " |"


def measured(script: Path, folder: Path, python: str, options: list[str]) -> Row:
    """One case from its start to the script that stands for it."""
    out = folder / "repro"
    ours = [sys.executable, "-m", "steadytrain"]
    run = subprocess.run(
        [*ours, "run", "--runs-dir", "runs", str(script)], cwd=folder, capture_output=True, check=False
    )
    if run.returncode != FAILED:
        raise SystemExit(f"{script.name} ended with {run.returncode} instead of {FAILED}")
    started = time.perf_counter()
    command = [*ours, "repro", "--runs-dir", "runs", "-o", str(out), "--json", *options]
    cut = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - started
    answer: dict[str, Any] = json.loads(cut.stdout) if cut.stdout else {"why": cut.stderr[-WORDS_OF_AN_ERROR:]}
    if not answer.get("made"):
        return Row(script.name, "", "", 0, 0.0, seconds, answer["why"])
    kilobytes = sum(one.stat().st_size for one in out.glob("repro.p*")) / 1000
    lines = len((out / "repro.py").read_text(encoding="utf-8").splitlines())
    clean = subprocess.run([python, "repro.py"], cwd=out, capture_output=True, text=True, check=False)
    told = (clean.stdout + clean.stderr).strip().splitlines() or [""]
    operations = " ".join(f"`{name.removeprefix('aten.')}`" for name in answer["operations"])
    if answer["backward"]:
        operations = f"backward of {operations}"
    return Row(
        script.name, operations, answer["produced"], lines, kilobytes, seconds, f"{clean.returncode}: {told[-1]}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="interpreter for the scripts that come out")
    parser.add_argument("--only", default="", help="scripts of zoo/nonfinite, comma between")
    asked, options = parser.parse_known_args()
    cases = [case for case in json.loads((ZOO / "cases.json").read_text())["cases"] if case["exit"] == FAILED]
    chosen = [case["script"] for case in cases if not asked.only or case["script"] in asked.only.split(",")]
    print(f"{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}, load {os.getloadavg()[0]:.1f}")
    print("| case | operations in the script | makes | lines | KB | s | by itself |\n|---|---|---|---|---|---|---|")
    beyond = []
    for script in chosen:
        with tempfile.TemporaryDirectory() as folder:
            row = measured(ZOO / script, Path(folder), asked.python, options)
        print(row, flush=True)
        if not row.is_within:
            beyond.append(script)
    bounds = f"{LINES_MAX} lines, {KB_MAX} KB, {SECONDS_MAX} s"
    print(
        f"{len(chosen) - len(beyond)} of {len(chosen)} within {bounds}"
        + ("; not: " if beyond else "")
        + ", ".join(beyond)
    )


if __name__ == "__main__":
    main()
