"""The harmful cells and the healthy families of ``early_unseen`` under ``steadytrain run``, as a user would start them.

``early.py`` replays recorded curves, so detectors that look at tensors or at the script have nothing to see there. Here
each cell is a process of its own. It writes the number of each update to its standard error, between the lines of
steadytrain, so a warning's delay is the number of updates that were made before the user could read it. Each run
appends a line to ``--into``; a run that has a line there is not run again.

    python benchmarks/early_watched.py --into early.jsonl --every 3       # every third cell and family
    python benchmarks/early_watched.py --into early.jsonl --table         # what is in the file
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
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from early import HEALTHY_SEEDS, UNSEEN, line_of
from early_runs.faulty import STEPS_AFTER

HEALTHY_STEPS = 500
RUN_S_MAX = 1200.0
MARK = re.compile(r"^@(\d+)$")
# A live line of a warning, and the lines of the summary, which follow the number of steps.
RAISED = re.compile(r"^steadytrain: (?:(?P<grade>warning|critical): |.*STOPPED)")
ENDED = re.compile(r"^steadytrain: .*\bsteps? seen\b")
SCRIPT = f"""\
import sys

sys.path.insert(0, {str(UNSEEN)!r})
import torch
from common import Setting
from healthy import FAMILIES
from loops import LOOPS

torch.set_num_threads(1)
name, fault, onset, seed, steps = sys.argv[1:]


class Marks(list):
    def append(self, loss):
        super().append(loss)
        print(f"@{{len(self)}}", file=sys.stderr, flush=True)


run = LOOPS.get(name) or FAMILIES[name]
run(Setting(steps=int(steps), seed=int(seed), fault=fault or None, onset=int(onset), record=Marks()))
"""

Row = dict[str, Any]


def planned(every: int) -> Iterator[Row]:
    """Each cell that did harm, and each healthy family with its seeds; ``every`` takes each n-th of both."""
    sys.path.insert(0, str(UNSEEN))
    from healthy import FAMILIES  # type: ignore[attr-defined]
    from loops import FAULTS  # type: ignore[import-not-found]

    cells = [
        cell for cell in json.loads((UNSEEN / "truth.json").read_text(encoding="utf-8"))["rows"] if cell["harmful"]
    ]
    for cell in cells[::every]:
        kind = "silent" if FAULTS[cell["fault"]].silent else "loud"
        steps = cell["onset"] + STEPS_AFTER + 1
        yield {
            "kind": kind,
            **{key: cell[key] for key in ("loop", "fault", "onset", "seed", "lost_share")},
            "steps": steps,
        }
    runs = [(name, seed) for seed in range(HEALTHY_SEEDS) for name in FAMILIES]
    for name, seed in runs[::every]:
        yield {"kind": "healthy", "loop": name, "fault": "", "onset": 0, "seed": seed, "steps": HEALTHY_STEPS}


def key(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("kind", "loop", "fault", "onset", "seed"))


def watched(row: Row) -> Row:
    """What the run said while it trained, and what ``show --json`` has of it."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "train.py"
        script.write_text(SCRIPT, encoding="utf-8")
        words = [str(row[name]) for name in ("loop", "fault", "onset", "seed", "steps")]
        command = [sys.executable, "-m", "steadytrain"]
        options: dict[str, Any] = {"cwd": folder, "env": {**os.environ, "OMP_NUM_THREADS": "1"}, "text": True}
        ran = subprocess.run(
            [*command, "run", "--name", "r", str(script), *words],
            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, timeout=RUN_S_MAX, check=False, **options,
        )  # fmt: skip
        shown = subprocess.run(
            [*command, "show", "r", "--json"], capture_output=True, timeout=RUN_S_MAX, check=False, **options
        )
        symptoms = json.loads(shown.stdout)["symptoms"] if shown.returncode == 0 else []
        incidents = [
            one.name for one in Path(folder).glob("steadytrain-runs/r/incidents/*") if (one / "replay").is_dir()
        ]
    return {
        **row,
        "status": ran.returncode,
        "live": list(live_lines(ran.stderr)),
        "symptoms": [{name: one[name] for name in ("name", "severity", "first_step", "message")} for one in symptoms],
        "incidents": incidents,
        "error": "" if ran.returncode in (0, 70) else ran.stderr[-400:],
    }


def live_lines(stderr: str) -> Iterator[list[Any]]:
    """The update after which a warning was on the terminal, and its line."""
    made = 0
    for line in stderr.splitlines():
        mark = MARK.match(line)
        if mark:
            made = int(mark[1])
        elif ENDED.match(line):
            return
        elif RAISED.match(line):
            yield [made, line]


def delay(row: Row) -> float:
    """Updates from the onset to the first warning on the terminal; the run's length if only its summary warned."""
    live = [made for made, line in row["live"] if made >= row["onset"]]
    if live:
        return float(live[0] - row["onset"])
    loud = [one for one in row["symptoms"] if one["severity"] != "note" and one["first_step"] > row["onset"] - 3]
    return float(row["steps"] - row["onset"]) if loud else np.inf


def table(rows: list[Row]) -> Iterator[str]:
    late, kept = defaultdict[tuple[str, str], list[float]](list), defaultdict[str, list[bool]](list)
    for row in rows:
        if row["kind"] != "healthy":
            late[row["kind"], row["fault"]].append(delay(row))
            kept[row["kind"]].append(bool(row["incidents"]))
    yield "| harmful cells of | cells | warned | within 32 steps | within 64 | median delay |"
    yield "|---|---|---|---|---|---|"
    for kind in ("loud", "silent"):
        for fault in sorted(name for one, name in late if one == kind):
            yield line_of(fault, late[kind, fault])
        yield line_of(f"all {kind} faults", [value for one, some in late.items() if one[0] == kind for value in some])
    yield ""
    for kind, some in kept.items():
        yield f"Of {len(some)} {kind} cells {sum(some)} kept an incident that can be replayed."
    healthy = [row for row in rows if row["kind"] == "healthy"]
    raised = [row for row in healthy if any(one["severity"] != "note" for one in row["symptoms"])]
    yield f"Of {len(healthy)} healthy runs {len(raised)} raised a warning or a critical symptom."
    for name, count in sorted(Counter(row["loop"] for row in raised).items()):
        names = {
            one["name"] for row in raised if row["loop"] == name for one in row["symptoms"] if one["severity"] != "note"
        }
        yield f"- {name}: {count} ({', '.join(sorted(names))})"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--into", type=Path, default=Path("early_watched.jsonl"), help="the file of results")
    parser.add_argument("--every", type=int, default=1, help="each n-th cell and healthy run")
    parser.add_argument("--only", default="", help="a regular expression for the loop or the fault")
    parser.add_argument("--table", action="store_true", help="print the table of what was run, and run nothing")
    arguments = parser.parse_args()
    rows = (
        [json.loads(line) for line in arguments.into.read_text(encoding="utf-8").splitlines()]
        if arguments.into.exists()
        else []
    )
    known = {key(row) for row in rows}
    for row in [] if arguments.table else planned(arguments.every):
        wanted = re.search(arguments.only, f"{row['loop']} {row['fault']}")
        if wanted and key(row) not in known:
            rows.append(watched(row))
            with arguments.into.open("a", encoding="utf-8") as file:
                file.write(json.dumps(rows[-1]) + "\n")
            print(*key(row), [(one["name"], one["severity"]) for one in rows[-1]["symptoms"]], file=sys.stderr)
    print(f"{date.today()}, {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}\n")
    for line in table(rows):
        print(line)


if __name__ == "__main__":
    main()
