"""The guard on training scripts of another hand: which incidents it recovers, and whether it leaves healthy runs alone.

``benchmarks/guard_unseen`` and its successors (``--set``) hold the scripts. A case counts as recovered
by its final number alone: the last line ``final: X``, the loss on a fixed held-out set. For a case that nothing can
help, the run has to end with status 70.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

SETS = ("guard_unseen", *(f"guard_unseen_{number}" for number in range(2, 10)))
FOLDER = Path(__file__).parent / SETS[0]
SCRIPT_S_MAX = 180.0
CLOSE = 0.05
STOPPED = 70


def launched(command: list[str], folder: str) -> dict[str, Any]:
    """Exit status and last ``final:`` of a command."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    options: dict[str, Any] = {"cwd": folder, "env": environment, "capture_output": True, "text": True, "check": False}
    try:
        done = subprocess.run([sys.executable, *command], timeout=SCRIPT_S_MAX, **options)
    except subprocess.TimeoutExpired:
        return {"status": None, "final": None, "said": f"not over after {SCRIPT_S_MAX:.0f} s"}
    lines = done.stdout.strip().splitlines()
    final = lines[-1].removeprefix("final:").strip() if lines and lines[-1].startswith("final:") else None
    return {"status": done.returncode, "final": final, "said": done.stderr[-600:]}


def run_watched(script: Path, seed: int, policy: str, folder: str) -> dict[str, Any]:
    """One run under ``steadytrain run``, recorded in ``folder`` as ``case``."""
    options = ["--policy", policy, "--runs-dir", folder, "--to", "none", "--name", "case"]
    return launched(["-m", "steadytrain", "run", *options, str(script), "--seed", str(seed)], folder)


def watched(script: Path, seed: int, policy: str) -> dict[str, Any]:
    """One run under ``steadytrain run``, with the actions of its ledger."""
    with tempfile.TemporaryDirectory() as folder:
        result = run_watched(script, seed, policy, folder)
        runs = ["--runs-dir", folder]
        ledger = subprocess.run(
            [sys.executable, "-m", "steadytrain", "ledger", *runs, "--json", "case"],
            capture_output=True, text=True, timeout=SCRIPT_S_MAX, check=False, cwd=folder,
        )  # fmt: skip
    try:
        actions = json.loads(ledger.stdout)["actions"]
    except (ValueError, KeyError):
        result["said"] += f" | no ledger: {ledger.stderr[-300:]}"
        actions = None
    return {**result, "actions": actions}


def number(result: dict[str, Any]) -> float:
    """The final loss; NaN where there is none."""
    return math.nan if result["final"] is None else float(result["final"])


def sick_case(script: Path, seed: int, policy: str, truth: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        bare = launched([str(script), "--seed", str(seed)], folder)
        twin = launched([str(script), "--seed", str(seed), "--twin"], folder)
    stop, held = watched(script, seed, "stop"), watched(script, seed, policy)
    end, goal, sick = number(held), number(twin), number(bare)
    return {
        "name": script.stem, "kind": "sick", "seed": seed, "bare": bare, "twin": twin, "stop": stop, "held": held,
        "recoverable": truth.get(script.stem, {}).get("recoverable", True),
        "recovered": math.isfinite(end) and end <= goal * (1 + CLOSE),
        "better": math.isfinite(end) and not (math.isfinite(sick) and end > sick),
        "stopped": held["status"] == STOPPED,
    }  # fmt: skip


def healthy_case(script: Path, seed: int, policy: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        bare = launched([str(script), "--seed", str(seed)], folder)
    held = watched(script, seed, policy)
    same = bare["final"] is not None and bare["final"] == held["final"]
    return {"name": script.stem, "kind": "healthy", "seed": seed, "bare": bare, "held": held, "same": same}


def count(result: dict[str, Any]) -> str:
    return "?" if result["actions"] is None else str(len(result["actions"]))


def short(result: dict[str, Any]) -> str:
    return f"- ({result['status']})" if result["final"] is None else f"{number(result):.4g}"


def verdict(case: dict[str, Any]) -> str:
    if not case["recoverable"]:
        return "stopped, as it should" if case["stopped"] else "NOT STOPPED"
    if case["recovered"]:
        return "recovered"
    return "better" if case["better"] else "stopped" if case["stopped"] else "WORSE OR LOST"


def table(cases: list[dict[str, Any]]) -> Iterator[str]:
    sick = [case for case in cases if case["kind"] == "sick"]
    healthy = [case for case in cases if case["kind"] == "healthy"]
    if sick:
        yield "| sick script | seed | bare | twin | policy stop | guarded | actions | outcome |"
        yield "|---|---|---|---|---|---|---|---|"
        for case in sick:
            ends = " | ".join(short(case[arm]) for arm in ("bare", "twin", "stop", "held"))
            yield f"| {case['name']} | {case['seed']} | {ends} | {count(case['held'])} | {verdict(case)} |"
        able = [case for case in sick if case["recoverable"]]
        good = sum(case["recovered"] for case in able)
        yield f"\nrecovered {good} of {len(able)}; no worse than the sick run {sum(c['better'] for c in able)}"
        lost = [case for case in sick if not case["recoverable"]]
        yield f"beyond help and stopped with status {STOPPED}: {sum(case['stopped'] for case in lost)} of {len(lost)}\n"
    if healthy:
        yield "| healthy script | seed | bare | guarded | actions | identical |"
        yield "|---|---|---|---|---|---|"
        for case in healthy:
            ends = f"{short(case['bare'])} | {short(case['held'])}"
            yield f"| {case['name']} | {case['seed']} | {ends} | {count(case['held'])} | {case['same']} |"
        alone = sum(case["same"] and case["held"]["actions"] == [] for case in healthy)
        yield f"\nleft alone {alone} of {len(healthy)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="*", default=[], help="scripts whose folder/name contains one of these")
    parser.add_argument("--set", choices=SETS, default=SETS[0], help="folder of the scripts (default: guard_unseen)")
    parser.add_argument("--seeds", nargs="*", type=int, default=[0])
    parser.add_argument("--policy", default="steady", help="policy that guards (default: steady)")
    parser.add_argument("--json", type=Path, help="write everything into this file too")
    chosen = parser.parse_args()
    place = FOLDER.parent / chosen.set
    truth = json.loads((place / "truth.json").read_text(encoding="utf-8"))

    def measured(job: tuple[Path, int]) -> dict[str, Any]:
        script, seed = job
        if script.parent.name == "healthy":
            case = healthy_case(script, seed, chosen.policy)
        else:
            case = sick_case(script, seed, chosen.policy, truth)
        print(f"{script.parent.name}/{script.stem} seed {seed}: {short(case['held'])}", file=sys.stderr, flush=True)
        return case

    scripts = [path.resolve() for kind in ("sick", "healthy") for path in sorted((place / kind).glob("*.py"))]
    scripts = [p for p in scripts if not chosen.only or any(o in f"{p.parent.name}/{p.stem}" for o in chosen.only)]
    with ThreadPoolExecutor(max_workers=2) as pool:
        cases = list(pool.map(measured, [(script, seed) for script in scripts for seed in chosen.seeds]))
    if chosen.json:
        chosen.json.write_text(json.dumps(cases, indent=1) + "\n", encoding="utf-8")
    print("\n".join(table(cases)))


if __name__ == "__main__":
    main()
