"""The guard against published rules for loss spikes, on runs of another hand whose fault is known.

Each run, with five seeds: bare, its twin without the fault, under each rule of ``guard_references.py``, and under
``steadytrain run --policy steady``. The table has the median over seeds. A run counts as recovered if its final loss on
held-out data is at most 5 % above the twin's. "lost": updates skipped or undone. "spikes": updates that were made from
a loss that is not finite, or more than twice the largest of the twin's.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from guard_board import CLOSE, FOLDER, STOPPED, launched, number, run_watched

from steadytrain.storage.run_folder import open_run

REFERENCES = Path(__file__).parent / "guard_references.py"
ARMS = {
    "bare": "none", "clip at 1": "clip", "ZClip": "zclip", "skip-step": "skip", "AdaGC": "adagc", "rewind": "rewind"
}  # fmt: skip
OURS = "--policy steady"
EVERY = 4
"""Every fourth script of the board, so that nobody chose them."""

SPIKE = 2.0
YOUNG_SHARE = 0.1
"""The share of a run whose losses are those of a beginner, and set no limit."""


def referred(script: Path, seed: int, rule: str, *more: str) -> dict[str, Any]:
    """One run under a rule."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        ended = launched([str(REFERENCES), rule, str(result), str(script), "--seed", str(seed), *more], folder)
        document: dict[str, Any] = {"losses": [], "lost": [], "actions": 0}
        if result.exists():
            document = json.loads(result.read_text(encoding="utf-8"))
    return {"status": ended["status"], "final": number(ended), **document}


def guarded(script: Path, seed: int) -> dict[str, Any]:
    """One run under the guard."""
    with tempfile.TemporaryDirectory() as folder:
        ended = run_watched(script, seed, "steady", folder)
        run = open_run(Path(folder) / "case")
        window = run.window()
        losses = [float(value) for value in window.signals["loss"]] if "loss" in window.signals else []
        steps = [int(step) for step in window.steps]
        actions = [action for action in run.actions if action.what != "observed"]
    lost = lost_steps(actions)
    places = [place for place, step in enumerate(steps, 1) if step in lost]
    return {
        "status": ended["status"], "final": number(ended), "losses": losses, "lost": places, "actions": len(actions),
        "lost_count": len(lost),
    }  # fmt: skip


def lost_steps(actions: list[Any]) -> set[int]:
    """The steps whose updates are not in the weights at the end: skipped, or undone by a roll-back."""
    lost: set[int] = set()
    left: dict[int, set[int]] = {}
    for action in actions:
        if action.what == "skipped-update":
            lost.add(action.step)
        elif action.what == "rolled-back":
            now, then = int(action.before["step"]), int(action.after["step"])
            returned = left.get(then)
            if returned is None:
                left[now] = set(lost)
                lost |= set(range(then + 1, now + 1))
            else:
                lost = returned | set(range(then + 1, now + 1))
    return lost


def spikes(arm: dict[str, Any], limit: float) -> int:
    lost = set(arm["lost"])
    young = YOUNG_SHARE * len(arm["losses"])
    made = (loss for place, loss in enumerate(arm["losses"], 1) if place > young and place not in lost)
    return sum(not math.isfinite(loss) or loss > limit for loss in made)


def case(script: Path, seed: int) -> dict[str, Any]:
    twin = referred(script, seed, "none", "--twin")
    grown = twin["losses"][int(YOUNG_SHARE * len(twin["losses"])) :]
    limit = SPIKE * max(grown, default=math.inf)
    arms = {name: referred(script, seed, rule) for name, rule in ARMS.items()} | {OURS: guarded(script, seed)}
    result = {}
    for name, arm in arms.items():
        end = arm["final"]
        result[name] = {
            "final": end, "ratio": end / twin["final"], "status": arm["status"], "actions": arm["actions"],
            "lost": arm.get("lost_count", len(arm["lost"])), "spikes": spikes(arm, limit),
            "recovered": math.isfinite(end) and end <= twin["final"] * (1 + CLOSE),
        }  # fmt: skip
    print(f"{script.stem} seed {seed}", file=sys.stderr, flush=True)
    return {"name": script.stem, "seed": seed, "twin": twin["final"], "arms": result}


def median_of(cells: list[dict[str, Any]], what: str) -> float:
    values = [cell[what] if math.isfinite(cell[what]) else math.inf for cell in cells]
    return statistics.median_low(values)


def shown(value: float) -> str:
    return "lost" if math.isinf(value) else f"{value:.3g}"


def table(cases: list[dict[str, Any]]) -> Iterator[str]:
    arms = [*ARMS, OURS]
    yield "| final loss over that of the twin | " + " | ".join(arms) + " |"
    yield "|---" * (len(arms) + 1) + "|"
    for name in dict.fromkeys(one["name"] for one in cases):
        own = [one["arms"] for one in cases if one["name"] == name]
        yield f"| {name} | " + " | ".join(shown(median_of([each[arm] for each in own], "ratio")) for arm in arms) + " |"
    every = {arm: [one["arms"][arm] for one in cases] for arm in arms}
    counts = {arm: sum(cell["recovered"] for cell in cells) for arm, cells in every.items()}
    yield f"| **recovered of {len(cases)}** | " + " | ".join(f"**{counts[arm]}**" for arm in arms) + " |"
    for label, what in (("updates lost", "lost"), ("spikes left", "spikes"), ("actions", "actions")):
        yield f"| {label}, mean | " + " | ".join(
            f"{statistics.fmean(cell[what] for cell in every[arm]):.1f}" for arm in arms
        ) + " |"  # fmt: skip
    stopped = sum(cell["status"] == STOPPED for cell in every[OURS])
    yield f"\nruns that the guard stopped with status {STOPPED}: {stopped} of {len(cases)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="*", default=[], help="scripts whose name contains one of these")
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--json", type=Path, help="write everything into this file too")
    chosen = parser.parse_args()
    scripts = sorted((FOLDER / "sick").glob("*.py"))
    scripts = [one for one in scripts if any(o in one.stem for o in chosen.only)] if chosen.only else scripts[::EVERY]
    with ThreadPoolExecutor(max_workers=2) as pool:
        jobs = [(script.resolve(), seed) for script in scripts for seed in chosen.seeds]
        cases = list(pool.map(lambda job: case(*job), jobs))
    if chosen.json:
        chosen.json.write_text(json.dumps(cases, indent=1) + "\n", encoding="utf-8")
    print("\n".join(table(cases)))


if __name__ == "__main__":
    main()
