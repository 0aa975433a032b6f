"""Runs the zoo of runs, diagnoses every case, tries the fix, and writes the scoreboard.

Each case is run watched in a folder of its own, diagnosed (`steadytrain diagnose`), and its mended script is run too.
What came out is kept in ``build/zoo``, one file a case, so that a board that was cut off goes on where it stopped. A
case that fails stays on the board.

    python zoo/scoreboard.py                          # all; an hour or two on two cores
    python zoo/scoreboard.py --only one_model,nan_row  # those whose name holds one of these
    python zoo/scoreboard.py --warm --quick            # while working on diagnoses: torch is imported once for all
    python zoo/scoreboard.py --fresh                   # forget what is there
    python zoo/scoreboard.py --write docs/scoreboard.md
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RUNS = ROOT / "zoo" / "runs"
KEPT = ROOT / "build" / "zoo"
RUN_S_MAX, DIAGNOSE_S_MAX, VERIFY_S_MAX = 300.0, 600.0, 300.0
ABOVE_POSSIBLE = ("confirmed", "likely")
SYMPTOMS_SHOWN = 2
WARM = "Times exclude the import of torch, some seconds per launch: the processes had torch in memory (`--warm`)."


@dataclass(frozen=True)
class Result:
    """What came of one case. ``rank`` is that of the true cause, None where it was not named (or refuted)."""

    script: str
    cause: str | None
    detected: bool | None
    first_step: int | None
    onset: int | None
    told: str | None
    rank: int | None
    status: str | None
    confirmed: bool
    wrong: tuple[str, ...]
    replay: str | None
    fixed: str
    verified: str
    diagnose_s: float | None
    run_s: float
    note: str


def main() -> None:
    arguments = _arguments()
    if arguments.warm:
        sys.path.insert(0, str(ROOT / "tests"))
        import warm

        sys.executable = warm.python()
    if arguments.fresh:
        shutil.rmtree(KEPT, ignore_errors=True)
    KEPT.mkdir(parents=True, exist_ok=True)
    cases = json.loads((RUNS / "cases.json").read_text(encoding="utf-8"))["cases"]
    results: dict[str, Result] = {}
    began = time.monotonic()
    for case in cases:
        name = _name(case)
        kept = KEPT / f"{name}.json"
        wanted = any(part in name for part in arguments.only.split(",")) and time.monotonic() - began < arguments.for_s
        if kept.is_file():
            results[name] = _read(kept)
            if not wanted or arguments.quick or not _is_quick(case, results[name]):
                continue
            results[name] = completed(case, results[name], arguments)
        elif wanted:
            results[name] = measured(case, arguments)
            if not arguments.quick:
                results[name] = completed(case, results[name], arguments)
        else:
            continue
        kept.write_text(json.dumps(asdict(results[name]), indent=1) + "\n", encoding="utf-8")
        print(line(results[name]), flush=True)
    text = board(cases, results, warm=arguments.warm)
    if arguments.write:
        Path(arguments.write).write_text(text, encoding="utf-8")
    print(summary(cases, results))


def measured(case: Mapping[str, Any], arguments: argparse.Namespace) -> Result:
    """Run and diagnose one case."""
    budget, workers = arguments.budget, arguments.workers
    name = _name(case)
    folder = KEPT / "runs" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    began = time.perf_counter()
    status, symptoms, err = watched(case, folder, "sick")
    run_s = time.perf_counter() - began
    note = "" if status == case.get("exit", 0) else f"ended with {status}: {err}"
    first = _first(case, symptoms)
    answer, diagnose_s, why = diagnosed(folder, "sick", budget, workers)
    note = "; ".join(filter(None, (note, why)))
    found = answer.get("diagnoses", []) if answer else []
    named = [one for one in found if one["status"] != "refuted"]
    accepted = [case.get("cause"), *case.get("accept", ())]
    rank = next((at for at, one in enumerate(named, 1) if one["cause"] in accepted), None)
    true = named[rank - 1] if rank else None
    wrong = tuple(one["cause"] for one in found if one["status"] == "confirmed" and one["cause"] not in accepted)
    if case.get("healthy"):
        wrong = tuple(one["cause"] for one in found if one["status"] in ABOVE_POSSIBLE)
    silent = case.get("silent", False)
    detected = first is not None or (silent and true is not None and true["status"] in ABOVE_POSSIBLE)
    return Result(
        script=case["script"],
        cause=case.get("cause"),
        detected=not symptoms if case.get("healthy") else detected,
        first_step=first,
        onset=case.get("onset"),
        told=named[0]["cause"] if named else None,
        rank=rank,
        status=true["status"] if true else None,
        confirmed=bool(true and true["status"] == "confirmed"),
        wrong=wrong,
        replay=answer.get("replay") if answer else None,
        fixed="",
        verified="",
        diagnose_s=diagnose_s,
        run_s=run_s,
        note=note,
    )


def completed(case: Mapping[str, Any], one: Result, arguments: argparse.Namespace) -> Result:
    """With what became of its fault in the mended script, and by the fix on the replay, where that can be asked."""
    folder = KEPT / "runs" / _name(case)
    return replace(
        one,
        fixed=mended(case, folder, arguments) if _can_be_mended(case) else "",
        verified=verified(case, folder, arguments.workers) if _can_be_verified(case) else "",
    )


def _is_quick(case: Mapping[str, Any], one: Result) -> bool:
    return (_can_be_mended(case) and not one.fixed) or (_can_be_verified(case) and not one.verified)


def _can_be_mended(case: Mapping[str, Any]) -> bool:
    return not case.get("healthy") and "fixed" not in case


def _can_be_verified(case: Mapping[str, Any]) -> bool:
    return bool(case.get("verify")) and not case.get("silent")


def watched(case: Mapping[str, Any], folder: Path, name: str, *arguments: str) -> tuple[int, list[dict[str, Any]], str]:
    """The script under watch: its status, its symptoms above a note, and the end of what it said."""
    script = (RUNS / case["script"]).resolve()
    options = ["--policy", "stop", "--level", case.get("level", "full"), "--keep-rewind", "--to", "none"]
    place = ["--runs-dir", str(folder / "runs"), "--name", name]
    done = _steadytrain(folder, RUN_S_MAX, "run", *options, *place, str(script), *arguments)
    said = done.stderr.strip().splitlines()[-1:] or [""]
    shown = _steadytrain(folder, RUN_S_MAX, "show", name, "--runs-dir", str(folder / "runs"), "--json")
    if shown.returncode:
        return done.returncode, [], said[0]
    symptoms = [
        one
        for one in json.loads(shown.stdout)["symptoms"]
        if one["severity"] != "note" and one["name"] != "throughput-stall"
    ]
    return done.returncode, symptoms, said[0]


def diagnosed(folder: Path, run: str, budget: str, workers: int) -> tuple[dict[str, Any] | None, float | None, str]:
    """The document of ``steadytrain diagnose``, its seconds, and why there is none."""
    began = time.perf_counter()
    source = [run, "--runs-dir", str(folder / "runs")]
    options = ["--budget", budget, "--workers", str(workers), "--json"]
    done = _steadytrain(folder, DIAGNOSE_S_MAX, "diagnose", *source, *options)
    seconds = time.perf_counter() - began
    try:
        document: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        return None, None, f"no diagnosis: {(done.stderr.strip().splitlines() or ['it said nothing'])[-1]}"
    (folder / f"diagnosis-{run}.json").write_text(json.dumps(document, indent=1), encoding="utf-8")
    return document, seconds, ""


def mended(case: Mapping[str, Any], folder: Path, arguments: argparse.Namespace) -> str:
    """What became of the fault in the script's mended form: gone, or what is still there.

    That is the expected symptoms; or, of a silent fault, the diagnosis.
    """
    status, symptoms, err = watched(case, folder, "mended", "--fixed")
    expected = {wanted["name"] for wanted in case.get("expect", ())}
    if status:
        return f"ended with {status}: {err}"
    still = sorted({one["name"] for one in symptoms} & expected)
    if case.get("silent"):
        answer, _, why = diagnosed(folder, "mended", arguments.budget, arguments.workers)
        found = answer["diagnoses"] if answer else []
        still = [one["cause"] for one in found if one["cause"] == case["cause"] and one["status"] in ABOVE_POSSIBLE]
        if why:
            return why
    return "still " + ", ".join(still) if still else "gone"


def verified(case: Mapping[str, Any], folder: Path, workers: int) -> str:
    """The effect of the fix on the replay, as ``steadytrain verify`` says."""
    source = ["sick", "--runs-dir", str(folder / "runs"), "--with", case["verify"], "--workers", str(workers), "--json"]
    done = _steadytrain(folder, VERIFY_S_MAX, "verify", *source)
    try:
        return str(json.loads(done.stdout)["effect"])
    except (ValueError, KeyError):
        return "not run"


# -- the board ---------------------------------------------------------------------------------------------------------


def board(cases: Sequence[Mapping[str, Any]], results: Mapping[str, Result], *, warm: bool = False) -> str:
    """The page."""
    sick = [case for case in cases if not case.get("healthy")]
    healthy = [case for case in cases if case.get("healthy")]
    parts = [
        "# Scoreboard of the zoo",
        "",
        f"Written by `make zoo` on {date.today().isoformat()}: {machine()}.",
        "The scripts and their expected results are in `zoo/runs`. Failing cases stay in the table.",
        "The causes were developed on these runs: the table guards against regressions, and predicts no other run.",
        *([WARM] if warm else []),
        "",
        summary(cases, results),
        "",
        "## Faulty runs",
        "",
        "| run | cause | detected | at (onset) | rank | status | named first | replay | mended script | fix on the "
        "replay | diagnosis, s |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
        *(row(case, results.get(_name(case))) for case in sick),
        "",
        "`detected`: the expected symptom was raised; for silent faults, the diagnosis found the cause likely.",
        "`rank`: of the true cause among those not refuted. `named first`: the first cause, if it is another one.",
        "",
        "## Healthy runs that look faulty",
        "",
        "| run | symptoms above a note | causes above possible | diagnosis, s |",
        "|---|---|---|---|",
        *(healthy_row(case, results.get(_name(case))) for case in healthy),
        "",
        "## Known misses",
        "",
        *(misses(cases, results) or ["None."]),
        "",
    ]
    return "\n".join(parts)


def summary(cases: Sequence[Mapping[str, Any]], results: Mapping[str, Result]) -> str:
    """The promises and what was measured, over the cases that were run."""
    sick = [results[_name(c)] for c in cases if not c.get("healthy") and _name(c) in results]
    healthy = [results[_name(c)] for c in cases if c.get("healthy") and _name(c) in results]
    seconds = [one.diagnose_s for one in [*sick, *healthy] if one.diagnose_s is not None]
    waiting = len(cases) - len(sick) - len(healthy)
    rows = [
        ("sick runs detected", "all", f"{sum(bool(one.detected) for one in sick)} of {len(sick)}"),
        ("right cause at rank 1", "90 %", f"{sum(one.rank == 1 for one in sick)} of {len(sick)}"),
        ("confirmed", "", f"{sum(one.confirmed for one in sick)} of {len(sick)}"),
        ("confirmed and wrong", "0", str(sum(len(one.wrong) for one in sick))),
        ("healthy with a cause above possible", "0", f"{sum(bool(one.wrong) for one in healthy)} of {len(healthy)}"),
        ("healthy with a symptom above a note", "0", f"{sum(not one.detected for one in healthy)} of {len(healthy)}"),
        ("mended script without the symptom", "all", f"{sum(one.fixed == 'gone' for one in sick)} of "
         f"{sum(bool(one.fixed) for one in sick)}"),
        ("median time to diagnosis", "60 s", f"{statistics.median(seconds):.0f} s" if seconds else "not run"),
    ]  # fmt: skip
    lines = ["| | promised | measured |", "|---|---|---|", *(f"| {a} | {b} | {c} |" for a, b, c in rows)]
    if waiting:
        lines += ["", f"Not run yet: {waiting} of {len(cases)} cases."]
    return "\n".join(lines)


def row(case: Mapping[str, Any], one: Result | None) -> str:
    name = _shown(case)
    if one is None:
        return f"| {name} | {case['cause']} | not run | | | | | | | | |"
    at = f"{one.first_step or '-'} ({one.onset or '-'})"
    seconds = f"{one.diagnose_s:.0f}" if one.diagnose_s is not None else "-"
    first = one.told if one.told and one.rank != 1 else ""
    if one.wrong:
        first += f" **confirmed: {', '.join(one.wrong)}**"
    cells = [
        name, case["cause"], "yes" if one.detected else "**no**", at, str(one.rank or "**-**"), one.status or "-",
        first, one.replay or "-", one.fixed or "-", one.verified or "-", seconds,
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def healthy_row(case: Mapping[str, Any], one: Result | None) -> str:
    if one is None:
        return f"| {_shown(case)} | not run | | |"
    seconds = f"{one.diagnose_s:.0f}" if one.diagnose_s is not None else "-"
    return (
        f"| {_shown(case)} | {'none' if one.detected else '**some**'} | {', '.join(one.wrong) or 'none'} | {seconds} |"
    )


def misses(cases: Sequence[Mapping[str, Any]], results: Mapping[str, Result]) -> list[str]:
    """Why cases are missed, as far as it is known."""
    lines = [f"- {_shown(case)}: {case['known_miss']}" for case in cases if case.get("known_miss")]
    return lines + [f"- `{one.script}`: {one.note}" for one in results.values() if one.note]


def line(one: Result) -> str:
    """A case in a line, while the board is made."""
    told = f"{one.told} first" if one.told and one.rank != 1 else ""
    wrong = f"WRONG {one.wrong}" if one.wrong else ""
    seconds = f"{one.diagnose_s:.0f} s" if one.diagnose_s is not None else "not diagnosed"
    parts = (one.script, f"detected {one.detected} at {one.first_step}", f"rank {one.rank} {one.status}", told, wrong)
    return "; ".join(part for part in (*parts, f"mended {one.fixed}", f"fix {one.verified}", seconds, one.note) if part)


def machine() -> str:
    """What it was measured on."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        names = [
            part.split(":", 1)[1].strip() for part in info.read_text().splitlines() if part.startswith("model name")
        ]
        model = names[0] if names else model
    torch = importlib.metadata.version("torch")
    load = f"other work: a load of {os.getloadavg()[0]:.0f}"
    return f"{os.cpu_count()} cores of {model} ({load}), Python {platform.python_version()}, torch {torch}"


def _first(case: Mapping[str, Any], symptoms: Sequence[Mapping[str, Any]]) -> int | None:
    expected = {wanted["name"] for wanted in case.get("expect", ())}
    return min((one["first_step"] for one in symptoms if one["name"] in expected), default=None)


def _name(case: Mapping[str, Any]) -> str:
    path = Path(case["script"])
    return f"{path.parent.name}-{path.stem}" if len(path.parts) > 1 else path.stem


def _shown(case: Mapping[str, Any]) -> str:
    return f"`{case['script'].removeprefix('../')}`"


def _read(kept: Path) -> Result:
    data = json.loads(kept.read_text(encoding="utf-8"))
    return Result(**{**data, "wrong": tuple(data["wrong"])})


def _steadytrain(folder: Path, wait_s: float, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "steadytrain", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    try:
        return subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=wait_s, check=False
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, "", f"took more than {wait_s:g} s")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="PART,...", help="cases whose name holds one of these")
    parser.add_argument("--warm", action="store_true", help="in processes that begin with torch in memory")
    parser.add_argument("--fresh", action="store_true", help="forget what is there")
    parser.add_argument("--budget", default="60s", help="of each diagnosis")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="run and diagnose, but neither mend nor verify as yet")
    parser.add_argument("--for-s", type=float, default=float("inf"), help="begin no case after so many seconds")
    parser.add_argument("--write", help="write the page here")
    return parser.parse_args()


if __name__ == "__main__":
    main()
