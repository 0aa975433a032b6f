"""How often the first fix that steadytrain offers mends a run, against plain rules of practice and against a coin.

    python benchmarks/against.py                # the sick scripts of zoo/opened; some 40 minutes on two cores
    python benchmarks/against.py --every 3      # every third
    python benchmarks/against.py --only gru     # those whose name holds this
    python benchmarks/against.py --json FILE    # also every number

Ours is what a user gets who follows the first advice without thinking, in two ways: the first fix of the most probable
cause that ``diagnose`` names, and the patch of ``steadytrain fix`` if that was seen to remove the symptom. What no
program can make (another initialization, rows to read) counts as not mended. Rules, and fixes that are no patch, are
applied from outside (``rules_of_practice.py``).

A run is mended if it ends by itself without an error, all its losses are finite, it trained on nine in ten of the
batches that the author's mended script (MENDED=1) trains on, and the mean loss of its last quarter lies above that of
the mended script by no more than two seeds of the mended script differ plus a tenth of the mended script's progress. It
is worse if it ends above the sick run by more than that, or fails sooner. A sick script that meets the bound of a
mended run has a fault that its loss does not show; it is counted apart. Results are kept in ``build/against``, and a
run that was cut off continues there.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SCRIPTS, KEPT = ROOT / "zoo" / "opened", ROOT / "build" / "against"
RUNNER = Path(__file__).with_name("rules_of_practice.py")
RUN_S_MAX, COMMAND_S_MAX = 180.0, 300.0
PROGRESS_SHARE = 0.1
TRAINED_SHARE = 0.9
START_SHARE, END_SHARE = 0.05, 0.25

RULES: Mapping[str, str] = {
    "learning rate / 3": f"rate:{1 / 3}",
    "learning rate / 10": "rate:0.1",
    "clip gradients at 1.0": "clip:1.0",
    "skip bad batches": "skip",
}
"""The rules of practice, and the sides of the coin."""

TRIALS: Mapping[str, str] = {
    "learning-rate-third": f"rate:{1 / 3}",
    "learning-rate-tenth": "rate:0.1",
    "learning-rate-up": "rate:10",
    "longer-warmup": "warm",
    "clip": "clip-tenth",
    "clip-usual": "clip-usual",
    "momentum-lower": "momentum:0.9",
    "beta2-lower": "beta2:0.9",
    "weight-decay-lower": f"decay:{1 / 3}",
    "weight-decay-none": "decay:0",
    "epsilon-up": "epsilon:1000",
    "epsilon-down": "epsilon:0.001",
    "dropout-none": "dropout:0.1",
    "drop-batch": "drop:{onset}-{onset}",
    "constant-learning-rate": "hold:{before}",
}
"""The trials of first fixes that can be made from outside, for the whole run."""

FIRST, PATCH = "steadytrain: first fix of diagnose", "steadytrain: patch of fix"
OURS = (FIRST, PATCH)


@dataclass(frozen=True)
class Ran:
    """One run. ``batches`` were seen and ``trained`` gave an update; ``finite`` losses came before the first that is
    not finite. ``start`` and ``end`` are mean losses of the first twentieth and of the last quarter, NaN without."""

    batches: int
    trained: int
    finite: int
    start: float
    end: float
    error: str

    @property
    def is_sound(self) -> bool:
        return not self.error and self.trained > 0 and self.finite == self.trained


def ran_of(document: Mapping[str, Any]) -> Ran:
    """A run from the result of ``rules_of_practice.py``; batches that were left out count for nothing."""
    left_out = set(document["left_out"])
    losses = [float(loss) for place, loss in enumerate(document["losses"]) if place not in left_out]
    finite = next((place for place, loss in enumerate(losses) if not math.isfinite(loss)), len(losses))
    head, tail = max(1, round(START_SHARE * len(losses))), max(1, round(END_SHARE * len(losses)))
    ends = (statistics.fmean(losses[:head]), statistics.fmean(losses[-tail:])) if losses else (math.nan, math.nan)
    return Ran(len(document["losses"]), len(losses), finite, *ends, document["error"])


def tolerance(mended: Ran, other_seed: Ran) -> float:
    """By how much a mended run may end above the mended script."""
    return abs(mended.end - other_seed.end) + PROGRESS_SHARE * max(0.0, mended.start - mended.end)


def is_mended(run: Ran, mended: Ran, allowed: float) -> bool:
    return run.is_sound and run.trained >= TRAINED_SHARE * mended.trained and run.end <= mended.end + allowed


def is_worse(run: Ran, sick: Ran, allowed: float) -> bool:
    """Whether a rule did harm: the run fails sooner than the sick one, or ends with a higher loss."""
    if run.is_sound and sick.is_sound:
        return run.end > sick.end + allowed
    return not run.is_sound and (sick.is_sound or run.finite < TRAINED_SHARE * sick.finite)


# What is run.


def measured(script: Path, budget: str) -> dict[str, Any]:
    """All runs of one sick script."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copy = folder / script.name
        shutil.copy(script, copy)
        runs = {rule: run(copy, how, folder) for rule, how in {"sick": "none", **RULES}.items()}
        mended = [run(copy, "none", folder, seed=seed, mended=True) for seed in (0, 1)]
        offered = offers(copy, budget, folder)
        for rule in OURS:
            path, how, _ = offered[rule]
            runs[rule] = run(path, how, folder) if how is not None else runs["sick"]
    found: dict[str, Any] = {"runs": {rule: asdict(one) for rule, one in runs.items()}}
    found |= {"mended": [asdict(one) for one in mended], "ours": {rule: offered[rule][2] for rule in OURS}}
    return {**found, "seconds": round(time.perf_counter() - began, 1)}


def run(script: Path, rule: str, folder: Path, *, seed: int = 0, mended: bool = False) -> Ran:
    result = folder / "result.json"
    result.unlink(missing_ok=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MENDED": "1" if mended else ""}
    command = [sys.executable, str(RUNNER), rule, str(seed), str(result), str(script)]
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=RUN_S_MAX, check=False
        )
    except subprocess.TimeoutExpired:
        return Ran(0, 0, 0, math.nan, math.nan, f"took more than {RUN_S_MAX:g} s")
    if not result.is_file():
        return Ran(0, 0, 0, math.nan, math.nan, done.stderr[-200:] or "no result")
    return ran_of(json.loads(result.read_text(encoding="utf-8")))


Offer = tuple[Path, str | None, str]
"""A script, the rule to run it under (None: no program can make the fix), and the fix in words."""


def offers(script: Path, budget: str, folder: Path) -> dict[str, Offer]:
    """What ``diagnose`` and ``fix`` offer. A patched script runs without a rule."""
    places = ("--runs-dir", "runs")
    original = script.read_text(encoding="utf-8")
    steadytrain(folder, "run", *places, script.name)
    shown = steadytrain(folder, "show", *places, "--json")
    answer = steadytrain(folder, "diagnose", *places, "--budget", budget, "--json")
    fixed = steadytrain(folder, "fix", *places, "--budget", budget, "--json", "--write")
    patched = script.with_name(f"patched_{script.name}")
    patched.write_text(script.read_text(encoding="utf-8"), encoding="utf-8")
    script.write_text(original, encoding="utf-8")
    patch = fixed["patch"] if fixed.get("effect") == "removed" else None
    by_patch: Offer = (patched, "none", f"{patch['what']} ({patch['cause']})") if patch else (script, None, "no patch")
    causes = [one for one in answer.get("diagnoses", []) if one["status"] != "refuted" and one["interventions"]]
    if not causes:
        return {FIRST: (script, None, "no fix offered"), PATCH: by_patch}
    cause, fix = causes[0]["cause"], causes[0]["interventions"][0]
    how, what = TRIALS.get(fix["trial"] or ""), f"{fix['what']} ({cause})"
    onset = min((one["first_step"] for one in shown.get("symptoms", []) if one["severity"] != "note"), default=None)
    if how is not None and (onset is not None or "{" not in how):
        return {FIRST: (script, how.format(onset=onset, before=max(1, (onset or 1) - 1)), what), PATCH: by_patch}
    if patch is not None and patch["cause"] == cause:
        return {FIRST: by_patch, PATCH: by_patch}
    return {FIRST: (script, None, f"in words: {what}"), PATCH: by_patch}


def steadytrain(folder: Path, *arguments: str) -> dict[str, Any]:
    """The JSON document that a command printed; empty if it printed none."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "steadytrain", *arguments]
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=COMMAND_S_MAX, check=False
        )
        document: dict[str, Any] = json.loads(done.stdout)
    except (ValueError, subprocess.TimeoutExpired):
        return {}
    return document


# What is counted.


@dataclass(frozen=True)
class Judged:
    """A sick script: which rules mend it and which make it worse. ``is_visible``: its loss shows the fault."""

    name: str
    is_visible: bool
    mended: frozenset[str]
    worse: frozenset[str]
    ours: Mapping[str, str]


def judged(name: str, found: Mapping[str, Any]) -> Judged:
    good, other = (Ran(**one) for one in found["mended"])
    allowed = tolerance(good, other)
    runs = {rule: Ran(**one) for rule, one in found["runs"].items()}
    sick = runs.pop("sick")
    return Judged(
        name,
        not is_mended(sick, good, allowed),
        frozenset(rule for rule, one in runs.items() if is_mended(one, good, allowed)),
        frozenset(rule for rule, one in runs.items() if is_worse(one, sick, allowed)),
        found["ours"],
    )


def row(one: Judged) -> str:
    by = ", ".join(sorted(one.mended)) or "nothing"
    worse = f"; worse by {', '.join(sorted(one.worse))}" if one.worse else ""
    ours = "; ".join(f"{rule}: {what}" for rule, what in one.ours.items())
    return f"{one.name}: {'mended by ' + by if one.is_visible else 'not visible in its loss'}{worse}; {ours}"


def table(scripts: Sequence[Judged]) -> str:
    """The counts as a Markdown table. The coin tosses among the rules, each as probable: its numbers are expected
    values."""
    seen = [one for one in scripts if one.is_visible]
    lines = ["| rule | mended | made worse | mends where neither of ours does |", "|---|---|---|---|"]
    for rule in (*OURS, *RULES):
        mended = [one for one in seen if rule in one.mended]
        beyond = _names(one for one in mended if not one.mended & set(OURS))
        harmed = sum(rule in one.worse for one in seen)
        lines.append(f"| {rule} | {len(mended)} of {len(seen)} | {harmed} | {'' if rule in OURS else beyond} |")
    coin = [sum(len(getattr(one, name) & set(RULES)) for one in seen) / len(RULES) for name in ("mended", "worse")]
    lines.append(f"| a coin: one of the four rules | {coin[0]:.2f} of {len(seen)} | {coin[1]:.2f} | |")
    by_none = [one for one in seen if not one.mended & set(RULES)]
    ours_alone = _names(one for one in by_none if one.mended)
    hidden = _names(one for one in scripts if not one.is_visible)
    said = " ".join(
        f"{what}: {_names(one for one in seen if one.ours.get(FIRST, '').startswith(begins))}."
        for what, begins in (("First fix in words only", "in words"), ("No fix offered", "no fix"))
    )
    lines += ["", said]
    said = f"Mended by at least one rule: {len(seen) - len(by_none)} of {len(seen)}. By ours alone: {ours_alone}."
    return "\n".join([*lines, "", f"{said} Not visible in the loss: {hidden}."])


def _names(scripts: Iterable[Judged]) -> str:
    return ", ".join(one.name.partition("_")[0] for one in scripts) or "none"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only every N-th script")
    parser.add_argument("--only", default="", help="only scripts whose name holds this")
    parser.add_argument("--budget", default="90s", help="time for each diagnosis, and for each patch (default: 90s)")
    parser.add_argument("--fresh", action="store_true", help="forget what is there")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every number into FILE")
    arguments = parser.parse_args()
    KEPT.mkdir(parents=True, exist_ok=True)
    sick = [one for one in sorted(SCRIPTS.glob("*.py")) if one.read_text("utf-8").startswith("# expect: sick")]
    scripts, everything = [], {}
    for script in [one for one in sick[:: arguments.every] if arguments.only in one.name]:
        kept = KEPT / f"{script.stem}.json"
        if arguments.fresh or not kept.is_file():
            kept.write_text(json.dumps(measured(script, arguments.budget), indent=1) + "\n", encoding="utf-8")
        everything[script.stem] = json.loads(kept.read_text(encoding="utf-8"))
        scripts.append(judged(script.stem, everything[script.stem]))
        print(row(scripts[-1]), flush=True)
    print(f"\n{table(scripts)}")
    print(f"{os.cpu_count()} CPUs, Python {platform.python_version()}")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(everything, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
