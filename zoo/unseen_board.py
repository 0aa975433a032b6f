"""Diagnoses the scripts of ``zoo/unseen``, whose author had not read steadytrain, and counts right and wrong answers.

    python zoo/unseen_board.py                # all; some two hours on two cores
    python zoo/unseen_board.py --every 4      # every fourth script
    python zoo/unseen_board.py --only moe     # those whose name holds this
    python zoo/unseen_board.py --opened       # the scripts of zoo/opened, which builders have read since
    python zoo/unseen_board.py --opened --device cuda --jobs 12   # copies whose default device is a GPU, side by side

A script is run watched in a folder of its own and diagnosed. A cause counts as the true one if its name, its summary or
the reason for it matches the regular expression in the script's header. The axis of the answer is compared with the one
that the author names, and counted as unknown where the answer says so; a schedule is on the axis of the optimizer. What
came of a script is kept in ``build/zoo-unseen`` (``build/zoo-opened``); a board that was cut off continues there. On a
GPU, scripts that bring their data from NumPy or a loader end with an error of their own, and are not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
UNSEEN, OPENED = ROOT / "zoo" / "unseen", ROOT / "zoo" / "opened"
KEPT = ROOT / "build"
RUN_S_MAX, DIAGNOSE_S_MAX = 300.0, 600.0
HEADER_LINES = 12
STOPPED = 70
"""The exit status of a run that steadytrain stopped."""

COMPLAINT = ("--symptom", "no-learning")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only every N-th script")
    parser.add_argument("--only", default="", help="only scripts whose name holds this")
    parser.add_argument("--opened", action="store_true", help="the scripts of zoo/opened")
    parser.add_argument("--budget", default="120s", help="time for each diagnosis (default: 120s)")
    parser.add_argument("--fresh", action="store_true", help="forget what is there")
    parser.add_argument("--device", default="cpu", help="the default device of the scripts (default: cpu)")
    parser.add_argument("--jobs", type=int, default=1, help="scripts side by side: their times then say little")
    arguments = parser.parse_args()
    folder = OPENED if arguments.opened else UNSEEN
    results_folder = KEPT / f"zoo-{folder.name}{'' if arguments.device == 'cpu' else f'-{arguments.device}'}"
    results_folder.mkdir(parents=True, exist_ok=True)
    chosen = [script for script in sorted(folder.glob("*.py"))[:: arguments.every] if arguments.only in script.name]
    if not chosen:
        sys.exit(f"no script in {folder} to judge by: {folder.name}/README.md says where they are")

    def result(script: Path) -> tuple[dict[str, str], dict[str, Any]]:
        kept = results_folder / f"{script.stem}.json"
        if arguments.fresh or not kept.is_file():
            found = measured(script, arguments.budget, arguments.device)
            kept.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        return header(script), json.loads(kept.read_text(encoding="utf-8"))

    results = []
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for script, (facts, found) in zip(chosen, pool.map(result, chosen), strict=True):
            if arguments.device != "cpu" and found["exit"] not in (0, STOPPED):
                print(f"{script.stem}: does not run on {arguments.device}", flush=True)
                continue
            results.append((facts, found))
            print(row(script.stem, facts, found), flush=True)
    print("\n" + summary(results))


def header(script: Path) -> dict[str, str]:
    """The ``name: value`` lines at the top of a script.

    Raises:
        ValueError: it does not say what to expect.
    """
    lines = script.read_text(encoding="utf-8").splitlines()[:HEADER_LINES]
    found = {
        name: value for line in lines if (match := re.match(r"# (\w+): (.*)", line)) for name, value in [match.groups()]
    }
    if found.get("expect") not in ("sick", "healthy"):
        raise ValueError(f"{script.name}: its first lines have no '# expect: sick' or '# expect: healthy'")
    return found


def measured(script: Path, budget: str, device: str = "cpu") -> dict[str, Any]:
    """Run and diagnose one script; ``symptoms`` and ``diagnoses`` are those of the JSON documents."""
    with tempfile.TemporaryDirectory() as folder:
        if device != "cpu":
            text = script.read_text(encoding="utf-8")
            script = Path(folder) / script.name
            moved = f'import torch\ntorch.set_default_device("{device}")'
            script.write_text(re.sub(r"^import torch$", moved, text, count=1, flags=re.MULTILINE), encoding="utf-8")
        ran = _steadytrain(folder, RUN_S_MAX, "run", "--runs-dir", "runs", str(script))
        shown = _document(_steadytrain(folder, RUN_S_MAX, "show", "--json", "--runs-dir", "runs"))
        began = time.perf_counter()
        options = ("--runs-dir", "runs", "--budget", budget, "--json")
        answer = _document(_steadytrain(folder, DIAGNOSE_S_MAX, "diagnose", *options))
        seconds = time.perf_counter() - began
        found = [one for one in shown.get("symptoms", []) if one["severity"] != "note"]
        # Where no detector spoke, the user does: the run learns badly.
        asked = {} if found else _document(_steadytrain(folder, DIAGNOSE_S_MAX, "diagnose", *COMPLAINT, *options))
    return {
        "exit": ran.returncode,
        "symptoms": [{key: one[key] for key in ("name", "severity", "message")} for one in shown.get("symptoms", [])],
        **_answered(answer),
        "diagnose_s": round(seconds, 1),
        "asked": _answered(asked) if asked else None,
    }


def _answered(answer: dict[str, Any]) -> dict[str, Any]:
    return {
        "status": answer.get("status"),
        "verdict": answer.get("verdict"),
        "replay": answer.get("replay"),
        "axis": (answer.get("axis") or {}).get("name"),
        "diagnoses": [
            {key: one[key] for key in ("cause", "status", "summary", "why")} for one in answer.get("diagnoses", [])
        ],
    }


def rank(facts: dict[str, str], result: dict[str, Any]) -> int | None:
    """The place of the true cause among those that are not refuted, from 1; None if it is not named."""
    says = re.compile(facts["says"], re.IGNORECASE)
    named = [one for one in result["diagnoses"] if one["status"] != "refuted"]
    for place, one in enumerate(named, 1):
        if says.search(_text(one)):
            return place
    return None


def wrong(facts: dict[str, str], result: dict[str, Any]) -> list[str]:
    """The causes that are confirmed and are not the true one; in a healthy run those above *possible*."""
    if facts["expect"] == "healthy":
        return [one["cause"] for one in result["diagnoses"] if one["status"] in ("confirmed", "likely")]
    says = re.compile(facts["says"], re.IGNORECASE)
    confirmed = [one for one in result["diagnoses"] if one["status"] == "confirmed"]
    return [one["cause"] for one in confirmed if not says.search(_text(one))]


def _text(diagnosis: dict[str, Any]) -> str:
    """What names the cause: its name, also as words and as a name of code (`zero_grad`), its summary and the reason."""
    name = diagnosis["cause"]
    return f"{name} {name.replace('-', ' ')} {name.replace('-', '_')} {diagnosis['summary']} {diagnosis['why']}"


def axis_judged(facts: dict[str, str], result: dict[str, Any]) -> str:
    """The axis of the answer, ``unknown`` or not, against the author's: ``right``, ``wrong``, or ``unknown``."""
    said, true = result.get("axis"), {"schedule": "optimizer"}.get(facts["axis"], facts["axis"])
    return "unknown" if said in (None, "unknown") else "right" if said == true else "wrong"


def alarms(result: dict[str, Any]) -> list[str]:
    return [one["name"] for one in result["symptoms"] if one["severity"] != "note"]


def row(name: str, facts: dict[str, str], result: dict[str, Any]) -> str:
    found = ", ".join(alarms(result)) or "no alarm"
    if facts["expect"] == "healthy":
        return f"{name}: healthy; {found}; above possible: {', '.join(wrong(facts, result)) or 'none'}"
    answer = f"{result['verdict']} ({result['status']})" if result["verdict"] else "no diagnosis"
    place = rank(facts, result)
    true_cause = f"true cause at rank {place}" if place else "true cause not named"
    asked = result.get("asked")
    if asked:
        at = rank(facts, asked)
        true_cause += f"; asked: {asked['verdict']} ({asked['status']}), {f'rank {at}' if at else 'not named'}"
    axis = f"axis {result.get('axis') or 'not said'} ({axis_judged(facts, result)})"
    return f"{name}: {found}; {answer}; {true_cause}; {axis}; {result['diagnose_s']} s"


def summary(results: list[tuple[dict[str, str], dict[str, Any]]]) -> str:
    sick = [(facts, one) for facts, one in results if facts["expect"] == "sick"]
    healthy = [(facts, one) for facts, one in results if facts["expect"] == "healthy"]
    ranks = [rank(facts, one) for facts, one in sick]
    proven = [place for (_, one), place in zip(sick, ranks, strict=True) if one["status"] == "confirmed"]
    axes = [axis_judged(facts, one) for facts, one in sick]
    seconds = [one["diagnose_s"] for _, one in sick] or [0.0]
    counts = {
        "sick runs": len(sick),
        "with an alarm": sum(bool(alarms(one)) for _, one in sick),
        "true cause at rank 1": ranks.count(1),
        "true cause named": len(ranks) - ranks.count(None),
        "confirmed and right": proven.count(1),
        "axis right": axes.count("right"),
        "axis wrong": axes.count("wrong"),
        "with a wrong cause confirmed": sum(bool(wrong(facts, one)) for facts, one in sick),
        "healthy runs": len(healthy),
        "healthy with an alarm": sum(bool(alarms(one)) for _, one in healthy),
        "healthy with a cause above possible": sum(bool(wrong(facts, one)) for facts, one in healthy),
    }
    lines = [f"{what}: {number}" for what, number in counts.items()]
    asked = [(facts, one["asked"]) for facts, one in results if one.get("asked")]
    if asked:
        right = sum(facts["expect"] == "sick" and rank(facts, one) == 1 for facts, one in asked)
        false = sum(one["status"] == "confirmed" and bool(wrong(facts, one)) for facts, one in asked)
        lines.append(
            f"asked with {' '.join(COMPLAINT)}, without an alarm: {len(asked)}; true cause at rank 1: {right}; with a "
            f"wrong cause confirmed: {false}"
        )
    return "\n".join([*lines, f"diagnosis: median {statistics.median(seconds):.0f} s, longest {max(seconds):.0f} s"])


def _steadytrain(folder: str, wait_s: float, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "steadytrain", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    options: dict[str, Any] = {"cwd": folder, "env": environment, "capture_output": True, "text": True, "check": False}
    try:
        return subprocess.run(command, timeout=wait_s, **options)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, "", f"took more than {wait_s:g} s")


def _document(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The JSON document that a command printed; empty if it printed none."""
    try:
        document: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        return {}
    return document


if __name__ == "__main__":
    main()
