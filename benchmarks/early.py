"""How soon the detectors report a planted fault in the first steps of a run, and how often a healthy run alarms them.

Trainings are run bare and once; what a watched run would record of each step (loss, gradient norm, learning rate) is
replayed through all detectors as they would look at it. Own families (``early_runs``) were in sight when the
thresholds were chosen; those of ``early_unseen`` were written by another hand and are reported apart. A cell is
harmful if held-out loss says so: ``early_runs.faulty.harm``, for the unseen ones ``early_unseen/truth.json``.

    python benchmarks/early.py                         # own families; about fifteen minutes
    python benchmarks/early.py --unseen                # the others; about half an hour
    python benchmarks/early.py --quick                 # a smoke test: numbers without meaning
    python benchmarks/early.py --recorded FILE         # curves that were kept with --keep FILE
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch
from early_runs import faulty, healthy
from early_runs.recorder import recorded

from steadytrain.core.model import Window
from steadytrain.detectors import Detector
from steadytrain.grouping import classified
from steadytrain.grouping.catalog import detectors
from steadytrain.testing import steps

UNSEEN = Path(__file__).parent / "early_unseen"
LOOK_STEPS, HASTY_STEPS, RECENT_STEPS, BEFORE = 16, 8, 64, 3
HEALTHY_SEEDS = 5

Row = dict[str, Any]


@dataclass(frozen=True)
class Heard:
    """The first warning and the first critical symptom of a run: the step of the look, and the name."""

    warning: tuple[int, str] | None
    critical: tuple[int, str] | None


# What is run.


def own(*, quick: bool) -> Iterator[Row]:
    loops, faults, onsets = list(faulty.LOOPS), faulty.FAULTS, faulty.ONSETS
    if quick:
        loops, faults, onsets = loops[:1], faults[:2], (20,)
    for loop in loops:
        curves, twin = faulty.train(loop, "", max(onsets), 0)
        yield row("healthy", loop, "", 0, 0, curves)
        for fault in faults:
            for onset in onsets:
                curves, probe = faulty.train(loop, fault, onset, 0)
                if faulty.harm(probe, twin, onset):
                    yield row("cell", loop, fault, onset, 0, curves)
    for seed in range(1 if quick else HEALTHY_SEEDS):
        for family in list(healthy.FAMILIES)[: 2 if quick else None]:
            yield row("healthy", family, "", 0, seed, healthy.train(family, seed))


def unseen() -> Iterator[Row]:
    sys.path.insert(0, str(UNSEEN))
    from healthy import FAMILIES  # type: ignore[attr-defined]
    from loops import FAULTS, LOOPS, Setting  # type: ignore[import-not-found]

    def curves_of(run: Any, setting: Any) -> list[Any]:
        def go() -> None:
            try:
                run(setting)
            except Exception as error:
                print(f"{setting.fault} ended with {error!r}", file=sys.stderr)

        return recorded(go)

    for cell in json.loads((UNSEEN / "truth.json").read_text(encoding="utf-8"))["rows"]:
        if cell["harmful"]:
            name, fault, onset, seed = (cell[key] for key in ("loop", "fault", "onset", "seed"))
            curves = curves_of(LOOPS[name], Setting(steps=onset + 201, seed=seed, fault=fault, onset=onset))
            yield row("silent" if FAULTS[fault].silent else "cell", name, fault, onset, seed, curves)
    for seed in range(HEALTHY_SEEDS):
        for name, run in FAMILIES.items():
            yield row("healthy", name, "", 0, seed, curves_of(run, Setting(steps=500, seed=seed)))


def row(kind: str, name: str, fault: str, onset: int, seed: int, curves: Iterable[Any]) -> Row:
    if kind == "cell" and fault in faulty.SILENT:
        kind = "silent"
    return {"key": [kind, name, fault, onset, seed], "streams": [one.to_json() for one in curves]}


# What the detectors report.


def heard(run: Row, looking: Sequence[Detector]) -> Heard:
    """The earliest of all optimizers' streams, of what begins at the onset or later."""
    onset = run["key"][3]
    facts = {"optimizers_in_turn": float(len(run["streams"]))} if len(run["streams"]) > 1 else {}
    first: dict[str, tuple[int, str]] = {}
    for curves in run["streams"]:
        window = steps(facts=facts, **{name: np.array(values) for name, values in curves.items()})
        for step, severity, name in raised(window, onset, looking):
            for grade in ("warning", "critical") if severity == "critical" else ("warning",):
                first[grade] = min(first.get(grade, (step, name)), (step, name))
    return Heard(first.get("warning"), first.get("critical"))


def raised(window: Window, onset: int, looking: Sequence[Detector]) -> Iterator[tuple[int, str, str]]:
    """Step of the look, severity and name of what is above a note; values that are not finite are seen at once."""
    bad = np.flatnonzero(~np.isfinite(window.signals["loss"]))
    if len(bad):
        yield int(window.steps[bad[0]]), "critical", "nonfinite-loss"
        window = window.slice(0, int(bad[0]))
    for end in range(HASTY_STEPS, len(window) + 1, HASTY_STEPS):
        if end <= onset:
            continue
        seen = window.slice(0, end)
        for detector in looking:
            if end % LOOK_STEPS and not detector.hasty:
                continue
            if not any(seen.has(need) for need in detector.needs):
                continue
            for symptom in detector.check(seen):
                known = classified(seen, symptom)
                recent = known.last_step > end - RECENT_STEPS and known.first_step > onset - BEFORE
                if recent and known.severity != "note":
                    yield end, known.severity, known.name


def report(runs: Iterable[Row], looking: Sequence[Detector]) -> Iterator[str]:
    delays: dict[tuple[str, str], list[float]] = defaultdict(list)
    told, names = Counter[str](), defaultdict[str, Counter[str]](Counter)
    for run in runs:
        kind, name, fault, onset, _ = run["key"]
        found = heard(run, looking)
        if kind == "healthy":
            told.update(["runs"] + [grade for grade in ("warning", "critical") if getattr(found, grade) is not None])
            if found.warning is not None:
                names[name][found.warning[1]] += 1
        else:
            delays[kind, fault].append(np.inf if found.warning is None else max(0, found.warning[0] - onset))
    yield "| harmful cells of | cells | warned | within 32 steps | within 64 | median delay |"
    yield "|---|---|---|---|---|---|"
    for kind, what in (("cell", "loud faults"), ("silent", "silent faults")):
        for fault in sorted(name for one, name in delays if one == kind):
            yield line_of(fault, delays[kind, fault])
        yield line_of(f"all {what}", [late for key, some in delays.items() if key[0] == kind for late in some])
    yield ""
    yield f"Healthy: {told['runs']} runs, {told['warning']} with a warning, {told['critical']} with a critical symptom."
    for name, counts in sorted(names.items()):
        yield f"- {name}: {', '.join(f'{detector} {count}' for detector, count in sorted(counts.items()))}"


def line_of(what: str, late: Sequence[float]) -> str:
    """A row of the table: how many of the delays there are, and how many are within the bounds."""
    if not late:
        return f"| {what} | 0 | | | | |"
    delays = np.array(late)
    shares = [f"{(delays < bound).sum()} ({(delays < bound).mean():.0%})" for bound in (np.inf, 33, 65)]
    known = delays[np.isfinite(delays)]
    return f"| {what} | {len(delays)} | {' | '.join(shares)} | {np.median(known) if len(known) else np.inf:.0f} |"


def kept(runs: Iterable[Row], path: Path | None) -> Iterator[Row]:
    if path is None:
        yield from runs
        return
    with path.open("w", encoding="utf-8") as file:
        for run in runs:
            file.write(json.dumps(run) + "\n")
            file.flush()
            yield run


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a smoke test: one loop, numbers without meaning")
    parser.add_argument("--unseen", action="store_true", help="the families of another hand")
    parser.add_argument("--only", help="one detector, by its name")
    parser.add_argument("--keep", type=Path, help="write the recorded curves to this file")
    parser.add_argument("--recorded", type=Path, help="curves that were kept, in place of runs")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    if arguments.recorded is not None:
        runs: Iterable[Row] = map(json.loads, arguments.recorded.read_text(encoding="utf-8").splitlines())
    else:
        runs = unseen() if arguments.unseen else own(quick=arguments.quick)
    looking = [one for one in detectors() if arguments.only in (None, type(one).__name__)]
    print(f"{date.today()}, {platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}\n")
    for line in report(kept(runs, arguments.keep), looking):
        print(line, flush=True)


if __name__ == "__main__":
    main()
