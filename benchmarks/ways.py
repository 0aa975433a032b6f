"""The matrix of frameworks: a user's script for each, bare against watched, in an environment of its own.

    python benchmarks/ways.py [--only NAME...] [--again] [--keep] [--pairs N] [--seconds S] [--docs docs/ways.md]

The scripts are in ``ways_rows``; comments ``# Title:``, ``# Needs:`` and ``# Note:`` say what a row is, and what pip
installs for it. A row that has a result in ``ways_rows/measured`` is left alone unless ``--again`` is given, so a
matrix that was cut off goes on. Each environment lies below ``build/ways``, in front of the one that runs this command,
so torch is not copied; it is removed after its row unless ``--keep`` is given.

Each script runs bare, watched, watched with one NaN, and watched with its learning rate times 1000. Then it runs bare
and watched in turn, ``--pairs`` times in all: the cost is the least CPU time of each. What it printed stays in
``build/ways/logs``.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path
from typing import Any

from ways_table import costs, write_table

from steadytrain.storage.run_folder import Run, open_run

ROOT = Path(__file__).parents[1]
ROWS = Path(__file__).parent / "ways_rows"
MEASURED = ROWS / "measured"
CACHE = ROOT / "build" / "ways"
BASE = Path(sys.prefix)
"""The environment of this command has torch and steadytrain; environments of rows see it behind their own packages."""


INSTALL_S_MAX, SCRIPT_S_MAX = 900.0, 600.0
FREE_GB_MIN = 8.0
"""Disk space that has to be free before an environment is made."""

MESSAGE_MAX = 160
ARMS = {"bare": (), "healthy": (), "nan": (), "rate": ("--policy", "observe")}

PAIRS = 3
"""Runs bare and watched in turn; a run's CPU time varies with what else the machine does, and is never less than its
work."""


def header(script: Path, word: str) -> str:
    found = re.search(rf"^# {word}: (.+)$", script.read_text(encoding="utf-8"), re.MULTILINE)
    return found[1].strip() if found else ""


def name_of(script: Path) -> str:
    """The file is not named as the framework: it would be imported in its place."""
    return script.stem.removeprefix("train_")


def called(line: list[str], limit_s: float, folder: Path, **more: str) -> tuple[int | None, str]:
    """Exit status (None: it was killed for time) and the end of what was printed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("STEADYTRAIN")}
    environment = {**kept, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TMPDIR": str(folder), **more}
    with open(folder / "printed.txt", "a+", encoding="utf-8", errors="replace") as printed:
        begins = printed.seek(0, os.SEEK_END)
        started = subprocess.Popen(line, cwd=folder, env=environment, stdout=printed, stderr=subprocess.STDOUT)
        try:
            status: int | None = started.wait(limit_s)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()
            status = None
        printed.seek(begins)
        return status, printed.read()


def last_line(text: str) -> str:
    """The last line of an error, short."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"(\w+\.)*\w*(Error|Exception|Interrupt)\b|ERROR", line)]
    return re.sub(r"(/[\w.+-]+){2,}/", ".../", (errors or lines or ["it printed nothing"])[-1])[:MESSAGE_MAX]


def make_environment(script: Path, folder: Path) -> str:
    """Install what ``script`` needs in front of the shared base; empty, or why it does not install."""
    place = CACHE / name_of(script)
    if (place / "ready").exists():
        return ""
    if shutil.disk_usage(ROOT).free < FREE_GB_MIN * 1e9:
        return f"not tried: less than {FREE_GB_MIN:.0f} GB of disk are free"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--clear", str(place)], check=True)
    [packages] = place.glob("lib/python*/site-packages")
    [base] = BASE.glob("lib/python*/site-packages")
    (packages / "base.pth").write_text(f"import site; site.addsitedir({str(base)!r})\n", encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "--python", python(script), "install", "-q"]
    held = ["--constraint", str(ROOT / "constraints.txt")]
    status, printed = called([*pip, *held, *header(script, "Needs").split()], INSTALL_S_MAX, folder)
    if status != 0:
        return f"does not install: {last_line(printed) if status is not None else 'it took too long'}"
    (place / "ready").touch()
    return ""


def versions(script: Path) -> dict[str, str]:
    code = (
        "import importlib.metadata as m, json, sys; "
        "print(json.dumps({n: m.version(n) for n in ['torch', *sys.argv[1:]]}))"
    )
    names = [re.split(r"[<>=!\[]", need)[0] for need in header(script, "Needs").split() if need[0] != "-"]
    done = subprocess.run([python(script), "-c", code, *names], capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def python(script: Path) -> str:
    return str(CACHE / name_of(script) / "bin" / "python")


def run_arm(script: Path, arm: str, folder: Path) -> dict[str, Any]:
    """One run of ``script``: what it says of itself, and what steadytrain recorded."""
    folder.mkdir(parents=True)
    watched = () if arm == "bare" else ("-m", "steadytrain", "run", "--name", "row", *ARMS[arm])
    line = [python(script), *watched, str(script)]
    result = folder / "result.json"
    began = time.monotonic()
    status, printed = called(line, SCRIPT_S_MAX, folder, WAYS_ARM=arm, WAYS_RESULT=str(result))
    answer: dict[str, Any] = {"status": status, "seconds": round(time.monotonic() - began, 1)}
    answer["message"] = last_line(printed) if status not in (0, 70) else ""
    if result.exists():
        answer |= json.loads(result.read_text(encoding="utf-8"))
    place = folder / "steadytrain-runs" / "row"
    if watched and (place / "run.json").exists():
        answer["run"] = recorded(open_run(place))
    logs = CACHE / "logs"
    logs.mkdir(exist_ok=True)
    (logs / f"{name_of(script)}-{folder.name}.txt").write_text(printed, encoding="utf-8")
    return answer


def recorded(run: Run) -> dict[str, Any]:
    streams = run.streams()
    window = run.scalars(streams[0]) if streams else None
    loss = window.signals.get("loss") if window is not None else None
    incident = next(iter(run.open_incidents()), None)
    samples = incident.samples if incident else ()
    return {
        "ended": run.ended, "streams": len(streams), "notes": run.facts.get("notes", []),
        "steps": 0 if window is None else len(window.steps),
        "losses": [] if loss is None else [float(value) for value in loss],
        "symptoms": sorted({(one.severity, one.name) for one in run.symptoms}),
        "operation": incident.located.operation if incident and incident.located else "",
        "rows": [one.named(row) for one in samples for row in one.nonfinite_rows][:4],
    }  # fmt: skip


def compared(own: list[float], seen: list[float]) -> dict[str, Any]:
    """The framework's losses one by one against those that were recorded."""
    gaps = [
        abs(one - other) / max(1.0, abs(one))
        for one, other in zip(own, seen, strict=False)
        if math.isfinite(one) and math.isfinite(other)
    ]
    return {"own": len(own), "seen": len(seen), "compared": len(gaps), "gap": max(gaps, default=None)}


def measure(script: Path, pairs: int) -> dict[str, Any]:
    """One row of the matrix."""
    row: dict[str, Any] = {
        "title": header(script, "Title") or name_of(script), "note": header(script, "Note"),
        "date": date.today().isoformat(), "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        "python": platform.python_version(),
    }  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="ways-") as name:
        folder = Path(name)
        failed = make_environment(script, folder)
        if failed:
            return row | {"failed": failed}
        row["versions"] = versions(script)
        arms = {"bare": run_arm(script, "bare", folder / "bare")}
        if "digest" not in arms["bare"] or arms["bare"]["status"] != 0:
            return row | {"failed": f"does not run bare: {arms['bare']['message']}", "arms": arms}
        for arm in ("healthy", "nan", "rate"):
            arms[arm] = run_arm(script, arm, folder / arm)
        more = [(run_arm(script, "bare", folder / f"bare{turn}"), run_arm(script, "healthy", folder / f"healthy{turn}"))
                for turn in range(1, pairs)]  # fmt: skip
        if arms["healthy"].get("digest") != arms["bare"]["digest"]:
            arms["again"] = more[0][0] if more else run_arm(script, "bare", folder / "again")
    healthy = arms["healthy"]
    row["cost"] = costs([(arms["bare"], healthy), *more])
    row["loss"] = compared(arms["bare"]["losses"], healthy.get("run", {}).get("losses", []))
    for arm in arms.values():
        arm.pop("losses", None)
        arm.get("run", {}).pop("losses", None)
    return row | {"arms": arms}


def whole(row: dict[str, Any]) -> bool:
    """Whether no script of the row was ended for time: that says more of the machine than of the framework."""
    return all(arm["status"] is not None for arm in row.get("arms", {}).values())


def row_of(script: Path) -> dict[str, Any]:
    """What was measured of ``script``, or that nothing was."""
    result = MEASURED / f"{name_of(script)}.json"
    if result.exists():
        return dict(json.loads(result.read_text(encoding="utf-8")))
    return {"title": header(script, "Title"), "note": header(script, "Note"), "failed": "not measured"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these rows")
    parser.add_argument("--again", action="store_true", help="measure rows that have a result already")
    parser.add_argument("--keep", action="store_true", help="keep the environments")
    parser.add_argument("--pairs", type=int, default=PAIRS, metavar="N", help="runs bare and watched for the cost")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no more rows after that time")
    parser.add_argument("--docs", type=Path, metavar="FILE", help="write the table between the marks of this page")
    given = parser.parse_args()
    began = time.monotonic()
    scripts = {name_of(path): path for path in sorted(ROWS.glob("train_*.py"))}
    unknown = sorted(set(given.only or ()) - set(scripts))
    if unknown:
        parser.error(f"{unknown[0]!r}: no such row; one of {', '.join(scripts)}")
    MEASURED.mkdir(exist_ok=True)
    for name in given.only or scripts:
        result = MEASURED / f"{name}.json"
        if (result.exists() and not given.again) or time.monotonic() - began > given.seconds:
            continue
        row = measure(scripts[name], max(1, given.pairs))
        if whole(row):
            result.write_text(json.dumps(row, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        if not given.keep:
            shutil.rmtree(CACHE / name, ignore_errors=True)
        ended = row.get("failed") or (
            "measured" if whole(row) else "ended for time, not kept: the next call tries again"
        )
        print(f"{name}: {ended}", file=sys.stderr, flush=True)
    rows = [row_of(script) for script in scripts.values()]
    print(write_table(rows, given.docs))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
