"""Scripts of another hand under ``steadytrain run``: which faults are reported, how early, and what healthy ones raise.

``benchmarks/scripts_unseen`` holds plain training scripts with one fault each, and healthy ones that resemble them.
Their author had not read steadytrain. ``truth.json`` has what each header says: the fault, its first step, and words of
which a report that names it must use one.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "scripts_unseen"
SCRIPT_S_MAX = 300.0


def reported(script: Path) -> dict[str, Any]:
    """``show --json`` of the script's run."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        runs = ("--runs-dir", folder)
        command = [sys.executable, "-m", "steadytrain"]
        options: dict[str, Any] = {"cwd": folder, "env": environment, "capture_output": True, "text": True}
        subprocess.run([*command, "run", *runs, str(script)], timeout=SCRIPT_S_MAX, check=False, **options)
        shown = subprocess.run([*command, "show", "--json", *runs], timeout=SCRIPT_S_MAX, check=True, **options)
    document: dict[str, Any] = json.loads(shown.stdout)
    return document


def table(cases: list[dict[str, Any]]) -> Iterator[str]:
    yield "| scripts | number | named by a warning | named by a note | any warning | nothing named |"
    yield "|---|---|---|---|---|---|"
    for folder in dict.fromkeys(Path(case["path"]).parent.name for case in cases):
        mine = [case for case in cases if Path(case["path"]).parent.name == folder]
        named, noted, loud, missed = 0, 0, 0, []
        for case in mine:
            found = case["symptoms"]
            words = re.compile(case["says"], re.IGNORECASE)
            hits = {one["severity"] for one in found if words.search(f"{one['name']} {one['message']}")}
            sick = case["expect"] == "sick"
            named += sick and bool(hits - {"note"})
            noted += sick and hits == {"note"}
            loud += any(one["severity"] != "note" for one in found)
            if sick != bool(hits) or (not sick and any(one["severity"] != "note" for one in found)):
                missed.append(Path(case["path"]).stem)
        yield f"| {folder} | {len(mine)} | {named} | {noted} | {loud} | {', '.join(missed) or 'none'} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folders", nargs="*", help="silent, healthy, lossy, lossy_healthy, guards; all without")
    arguments = parser.parse_args()
    cases = []
    for case in json.loads((FOLDER / "truth.json").read_text(encoding="utf-8")):
        if not arguments.folders or Path(case["path"]).parent.name in arguments.folders:
            found = reported(FOLDER / case["path"])["symptoms"]
            cases.append({**case, "symptoms": found})
            print(case["path"], [(one["name"], one["severity"], one["first_step"]) for one in found], file=sys.stderr)
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}\n")
    for line in table(cases):
        print(line)


if __name__ == "__main__":
    main()
