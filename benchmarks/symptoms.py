"""What the detectors miss, what they invent, and what they cost, beside the rules of other tools.

Tables: false alarms on healthy simulated runs and on surrogates of real ones, as whole logs and in a live window that
slides; the same for the rules of others, on the loss; faults of known size, how many each finds and how late; labelled
logs of real runs (``--logs DIR``); and the time of a look. An alarm is a symptom above a note. Seeds are fixed; numbers
are the same on every machine but for times and for the two real runs, which read the standard library of this Python.

    python benchmarks/symptoms.py                      # under ten minutes
    python benchmarks/symptoms.py --logs DIR           # with a folder that holds labels.json and the logs it names
    python benchmarks/symptoms.py --quick              # a smoke test: few steps, numbers without meaning
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

import numpy as np
from trials.noise import LEVEL, LOG_NORM_SIGMA, NOISES, SIGMA, WITH_TREND, Values, generator, simulated, surrogate
from trials.real import STEPS, traces, traces_of_logs
from trials.rules import RULES, episodes
from trials.short_logs import PRACTICE, ROWS, STRIDES, ShortLog, of_losses, with_more

from steadytrain.core.model import Symptom, Window
from steadytrain.detectors import Detector
from steadytrain.grouping import judge
from steadytrain.grouping.catalog import detector_name, detectors, log_detectors
from steadytrain.testing import steps

TRACE_STEPS = 100_000
LIVE_STEPS, LIVE_WINDOW, LOOK_STEPS, RECENT_STEPS = 20_000, 2048, 16, 64
ONSET, HORIZON = 5_000, 256
RULES_BEFORE = 1_000
"""Steps before the onset that the rules of others see: they look back by 200 at most."""

Runs = Mapping[str, Callable[[int, int], Window]]
"""Healthy runs by their kind: of so many steps, with a seed."""


@dataclass(frozen=True)
class Size:
    """How much is simulated: traces of each noise for whole logs and for the live window, and faults of each kind."""

    traces: int
    trace_steps: int
    live_traces: int
    live_steps: int
    real_steps: int
    faults: int
    million: int
    short: int


FULL = Size(5, TRACE_STEPS, 2, LIVE_STEPS, STEPS, 200, 1_000_000, 40)
QUICK = Size(1, 4_000, 1, 2_600, 600, 4, 20_000, 1)


# False alarms.


def healthy_runs(size: Size, logs: Path | None) -> Runs:
    kinds = {kind: lambda count, seed, kind=kind: simulated(kind, count, seed=seed) for kind in NOISES}
    real = [*traces(size.real_steps), *(traces_of_logs(logs) if logs is not None else ())]
    return kinds | {t.name: lambda count, seed, trace=t: surrogate(trace, count, seed=seed) for t in real}


def alarms(window: Window, looking: Sequence[Detector]) -> list[Symptom]:
    return [symptom for detector in looking for symptom in detector.check(window) if symptom.severity != "note"]


def live_alarms(window: Window, looking: Sequence[Detector]) -> Counter[str]:
    """What looks every 16 steps at the newest 2,048 raise, each name and first step once.

    As in a run under watch, only what is not over or has been for less than 64 steps: at its older edge a window sees
    too little to judge.
    """
    raised = set()
    for end in range(LOOK_STEPS, len(window) + 1, LOOK_STEPS):
        seen = window.slice(max(0, end - LIVE_WINDOW), end)
        for symptom in alarms(seen, looking):
            if symptom.last_step > seen.steps[-1] - RECENT_STEPS:
                raised.add((symptom.name, symptom.first_step))
    return Counter(name for name, _ in raised)


def false_alarms(size: Size, runs: Runs) -> Iterator[str]:
    looking = detectors()
    yield "| noise | steps | alarms per 1e5 | by detector | live: steps | alarms per 1e5 | by detector |"
    yield "|---|---|---|---|---|---|---|"
    whole: Counter[str] = Counter()
    live: Counter[str] = Counter()
    for kind, run in runs.items():
        found, found_live = Counter[str](), Counter[str]()
        for seed in range(size.traces):
            found.update(symptom.name for symptom in alarms(run(size.trace_steps, seed), looking))
        for seed in range(size.live_traces):
            found_live.update(live_alarms(run(size.live_steps, 100 + seed), looking))
        counts = (size.traces * size.trace_steps, size.live_traces * size.live_steps)
        yield f"| {kind} | {_rate(found, counts[0])} | {_rate(found_live, counts[1])} |"
        whole += found
        live += found_live
    total, live_total = size.traces * size.trace_steps * len(runs), size.live_traces * size.live_steps * len(runs)
    yield f"| all | {_rate(whole, total)} | {_rate(live, live_total)} |"
    yield ""
    yield (
        f"No alarm in N steps bounds the rate at 3/N: {_bound(total)} per 1e5 over all whole logs, "
        f"{_bound(size.traces * size.trace_steps)} for one kind of noise, {_bound(live_total)} live."
    )
    window = next(iter(runs.values()))(size.live_steps, 0)
    idle = [detector_name(type(d)) for d in looking if not any(window.has(need) for need in d.needs)]
    yield f"Looked: {len(looking) - len(idle)} detectors. Had nothing to look at: {', '.join(idle) or 'none'}."


def _rate(found: Counter[str], count: int) -> str:
    by = ", ".join(f"{name} {times}" for name, times in sorted(found.items())) or "none"
    return f"{count:,} | {found.total() / count * 1e5:.2f} | {by}"


def _bound(count: int) -> str:
    return f"{3e5 / count:.2g}"


def false_alarms_of_rules(size: Size, runs: Runs) -> Iterator[str]:
    kinds = [kind for kind in runs if kind not in WITH_TREND]
    yield f"Episodes in 1e5 steps of the loss (one run of {size.trace_steps:,}); more than 16 steps apart they are two."
    yield ""
    yield f"| rule | {' | '.join(kinds)} |"
    yield f"|---|{'---|' * len(kinds)}"
    losses = {kind: runs[kind](size.trace_steps, 0).applied("loss").values for kind in kinds}
    for name, rule in RULES.items():
        counts = [episodes(rule(loss)) / size.trace_steps * 1e5 for loss in losses.values()]
        yield f"| {name} | {' | '.join(f'{count:.0f}' for count in counts)} |"
    ours = [len(alarms(steps(loss=loss), on_loss())) / size.trace_steps * 1e5 for loss in losses.values()]
    yield f"| steadytrain | {' | '.join(f'{count:.0f}' for count in ours)} |"


# Faults.


def fault(kind: str, count: int) -> Values:
    """What is added to the loss from the onset on, in sigma."""
    after = np.arange(count, dtype=np.float64)
    return {
        "one step +8": np.where(after < 1, 8.0, 0.0),
        "ten steps +5": np.where(after < 10, 5.0, 0.0),
        "level +1": np.full(count, 1.0),
        "level +2": np.full(count, 2.0),
        "ramp 0.01 a step": 0.01 * after,
        "exp(t/50) - 1": np.minimum(np.exp(after / 50.0) - 1.0, 500.0),
        "none": np.zeros(count),
    }[kind]


FAULTS = ("one step +8", "ten steps +5", "level +1", "level +2", "ramp 0.01 a step", "exp(t/50) - 1")
NONE = "none"
FAULTY_NOISES = ("Gaussian", "AR(0.3)", "Student t5")


def on_loss() -> list[Detector]:
    return [detector for detector in detectors() if "loss" in detector.needs]


def delay(window: Window, looking: Sequence[Detector]) -> float:
    """Steps from the onset to the first alarm; Inf where none was raised within the horizon."""
    found = []
    for symptom in alarms(window, looking):
        at = symptom.first_step if symptom.name == "loss-spike" else symptom.last_step
        found.append(symptom.numbers.get("alarm_step", at) - ONSET)
    return min((late for late in found if 0 <= late < HORIZON), default=float("inf"))


def delay_of_rule(rule: Callable[[Values], np.ndarray], loss: Values) -> float:
    begin = ONSET - 1 - RULES_BEFORE
    late = np.flatnonzero(rule(loss[begin : ONSET - 1 + HORIZON])[RULES_BEFORE:])
    return float(late[0]) if len(late) else float("inf")


def detection(size: Size) -> Iterator[str]:
    yield f"Found within {HORIZON} steps of the onset, and the median delay in steps. Chance: the same without a fault."
    for kind in FAULTY_NOISES:
        yield ""
        yield f"{kind} noise, {size.faults} runs, fault at step {ONSET:,}, sizes in sigma (of t5 in its units):"
        yield ""
        yield f"| rule | chance | {' | '.join(FAULTS)} |"
        yield f"|---|---|{'---|' * len(FAULTS)}"
        late = delays(kind, size)
        for rule in ("steadytrain", "steadytrain, live window", *RULES):
            chance = np.isfinite(late[rule, NONE]).mean()
            yield f"| {rule} | {chance:.1%} | {' | '.join(_found(late[rule, name]) for name in FAULTS)} |"


def delays(kind: str, size: Size) -> dict[tuple[str, str], list[float]]:
    """The delay in each run, by rule and fault."""
    looking = on_loss()
    late: dict[tuple[str, str], list[float]] = {}
    for seed in range(size.faults):
        draw = generator(kind, 700 + seed)
        noise = LEVEL + SIGMA * NOISES[kind](draw, ONSET - 1 + HORIZON)
        for name in (*FAULTS, NONE):
            loss = noise.copy()
            loss[ONSET - 1 :] += SIGMA * fault(name, HORIZON)
            live = steps(loss=loss[-LIVE_WINDOW:], first_step=len(loss) - LIVE_WINDOW + 1)
            spoke = {"steadytrain": delay(steps(loss=loss), looking), "steadytrain, live window": delay(live, looking)}
            spoke |= {rule: delay_of_rule(apply, loss) for rule, apply in RULES.items()}
            for rule, when in spoke.items():
                late.setdefault((rule, name), []).append(when)
    return late


def _found(late: Sequence[float]) -> str:
    found = np.array([when for when in late if np.isfinite(when)])
    return f"{len(found) / len(late):.1%}" + (f", {np.median(found):.0f}" if len(found) else "")


# Logs of real runs.


def window_of(path: Path) -> Window:
    """A log as a table ``step, loss[, grad_norm][, lr]``; later rows of the same step are left out."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    kept: dict[int, dict[str, str]] = {}
    for row in rows:
        kept.setdefault(int(float(row["step"])), row)
    numbers = np.array(sorted(kept), np.int64)
    names = {"loss": "loss", "gradient_norm": "grad_norm", "learning_rate": "lr"}
    texts = {signal: [kept[step].get(column) or None for step in numbers.tolist()] for signal, column in names.items()}
    columns = {
        signal: [None if text is None else float(text) for text in column]
        for signal, column in texts.items()
        if any(text is not None for text in column)
    }
    window = steps(**columns)
    return Window(**{**window.__dict__, "steps": numbers, "time": numbers.astype(np.float64)})


def labelled(folder: Path) -> Iterator[str]:
    yield "| run | label | rows | verdict | symptoms above a note |"
    yield "|---|---|---|---|---|"
    looking = log_detectors()
    score: Counter[str] = Counter()
    for run in json.loads((folder / "labels.json").read_text(encoding="utf-8")):
        window = window_of(folder / run["file"])
        found = alarms(window, looking)
        label = run["label"]
        events = [event["step"] for event in run["events"]]
        strange = [symptom for symptom in found if not _explained(symptom, label, events)]
        if label == "ambiguous":
            verdict = "not scored"
        elif label in ("healthy", "plateau"):
            verdict = "alarm" if strange else "quiet"
        else:
            verdict = "found" if len(found) > len(strange) else "missed"
        score[f"{'healthy' if label in ('healthy', 'plateau') else 'sick'}: {verdict}"] += 1
        told = "; ".join(f"{s.severity} {s.name} {s.first_step}-{s.last_step}" for s in found) or "none"
        yield f"| {run['run']} | {label} | {len(window):,} | {verdict} | {told} |"
    yield ""
    yield ", ".join(f"{what} {count}" for what, count in sorted(score.items())) + " (healthy: healthy and plateau)"


def _explained(symptom: Symptom, label: str, events: Sequence[int]) -> bool:
    """Whether the label knows of it: an event inside it, or a plateau that is called one."""
    if label == "plateau" and symptom.name in ("plateau", "no-learning", "loss-collapse"):
        return True
    return any(symptom.first_step <= event <= symptom.last_step for event in events)


# Short and sparse logs.


def graves(window: Window, looking: Sequence[Detector]) -> list[Symptom]:
    """What `steadytrain analyze` shows above a note."""
    return [symptom for symptom in judge(window, looking).symptoms if symptom.severity != "note"]


def short_logs(seeds: int, folder: Path | None) -> Iterator[str]:
    """Recall and false alarms by rows and rule; then what is missed and invented, by kind."""
    looking = log_detectors()
    rules: dict[str, Callable[[Window], bool]] = {
        "steadytrain": lambda window: bool(graves(window, looking)),
        **PRACTICE,
    }
    yield f"Rows {', '.join(map(str, ROWS))}; strides {', '.join(map(str, STRIDES))}; {seeds} seeds of each kind."
    for title, gather in (("loss alone", of_losses), ("with other columns", with_more)):
        logs = {rows: list(gather(rows, seeds)) for rows in ROWS}
        yield from _short_table(f"Simulated, {title}", logs, rules)
    if folder is not None:
        yield from _short_table("Excerpts of the labelled logs", {r: list(_excerpts(folder, r)) for r in ROWS}, rules)


def _short_table(
    title: str, logs: Mapping[int, Sequence[ShortLog]], rules: Mapping[str, Callable[[Window], bool]]
) -> Iterator[str]:
    counted = {rows: Counter(log.faulty for log in some) for rows, some in logs.items()}
    told = ", ".join(f"{rows} rows: {count[True]} faulty, {count[False]} healthy" for rows, count in counted.items())
    yield f"\n### {title}\n\n{told}\n"
    yield f"| rule | {' | '.join(f'{rows} rows: recall | false alarms' for rows in logs)} |"
    yield f"|---|{'---|---|' * len(logs)}"
    wrong: Counter[str] = Counter()
    every = Counter(f"{log.name}{'' if log.faulty else ' (healthy)'}" for some in logs.values() for log in some)
    for name, rule in rules.items():
        cells = []
        for rows, some in logs.items():
            spoke: Counter[bool] = Counter()
            for log in some:
                fired = rule(log.window)
                spoke[log.faulty] += fired
                if name == "steadytrain" and fired != log.faulty:
                    wrong[f"{log.name}{'' if log.faulty else ' (healthy)'}"] += 1
            cells += [_share(spoke[faulty], counted[rows][faulty]) for faulty in (True, False)]
        yield f"| {name} | {' | '.join(cells)} |"
    yield "\nWrong, by kind: " + (
        ", ".join(f"{kind} {count} of {every[kind]}" for kind, count in wrong.items()) or "none"
    )


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "-"


def _excerpts(folder: Path, rows: int) -> Iterator[ShortLog]:
    """Every k-th row, and the first, middle and last rows, of each labelled healthy log; and with a fault planted."""
    for run in json.loads((folder / "labels.json").read_text(encoding="utf-8")):
        whole = window_of(folder / run["file"])
        if run["label"] != "healthy" or "objective_change" in run["flags"] or len(whole) < rows:
            continue
        middle = (len(whole) - rows) // 2
        cuts = {start: np.arange(start, start + rows) for start in (0, middle, len(whole) - rows)}
        cuts |= {-1: np.linspace(0, len(whole) - 1, rows).astype(np.int64)}
        for start, taken in cuts.items():
            window = _rows_of(whole, taken)
            yield ShortLog("excerpt", window, False)
            if start != 0:
                loss = window.signals["loss"].copy()
                loss[rows // 2 :] *= 4.0
                yield ShortLog("excerpt multiplied", replace(window, signals={**window.signals, "loss": loss}), True)


def _rows_of(window: Window, taken: np.ndarray) -> Window:
    return Window(
        steps=window.steps[taken],
        time=window.time[taken],
        signals={name: values[taken] for name, values in window.signals.items()},
        present={name: there[taken] for name, there in window.present.items()},
        skipped=window.skipped[taken],
        refused=window.refused[taken],
    )


# Cost.


def cost(size: Size) -> Iterator[str]:
    """Each window once, a different one each time: nothing of it is remembered, but within one look."""
    looking = detectors()
    yield "| detector | us at 512 steps | us at 2,048 steps |"
    yield "|---|---|---|"
    windows = [[_window(count, seed) for seed in range(20)] for count in (512, LIVE_WINDOW)]
    alone = {detector_name(type(d)): [_median_us([d], some) for some in windows] for d in looking}
    for name, (short, long) in alone.items():
        yield f"| {name} | {short:.0f} | {long:.0f} |"
    together = [_median_us(looking, some) for some in windows]
    yield f"| all, one look (they share a track) | {together[0]:.0f} | {together[1]:.0f} |"
    each = [spent / LOOK_STEPS for spent in together]
    yield f"| all, each step at a look every {LOOK_STEPS} | {each[0]:.1f} | {each[1]:.1f} |"
    sliding = [_median_us(looking, _slid(count)) for count in (512, LIVE_WINDOW)]
    yield f"| all, one look at a window that slid by {LOOK_STEPS} | {sliding[0]:.0f} | {sliding[1]:.0f} |"
    yield ""
    draw = generator("Gaussian", 3)
    loss, log_norm = (NOISES["Gaussian"](draw, size.million) for _ in range(2))
    window = steps(loss=LEVEL + SIGMA * loss, gradient_norm=np.exp(LOG_NORM_SIGMA * log_norm))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.thread_time()
    alarms(window, looking)
    spent_s = time.thread_time() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    memory = f"{peak / 1024:.0f} MiB, {before / 1024:.0f} before"
    yield f"{size.million:,} rows of loss and gradient norm: {spent_s:.2f} s of the processor; peak memory {memory}"


def _window(count: int, seed: int) -> Window:
    whole = simulated("Gaussian", 4 * LIVE_WINDOW, seed=seed)
    return whole.slice(len(whole) - count, len(whole))


def _slid(count: int) -> list[Window]:
    whole = simulated("Gaussian", 4 * LIVE_WINDOW, seed=99)
    return [whole.slice(end - count, end) for end in range(count + LIVE_WINDOW, len(whole), LOOK_STEPS)]


def _median_us(looking: Sequence[Detector], windows: Sequence[Window]) -> float:
    spent = []
    for window in windows:
        started = time.thread_time()
        for detector in looking:
            detector.check(window)
        spent.append(time.thread_time() - started)
    return float(np.median(spent)) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a smoke test: few steps, numbers without meaning")
    parser.add_argument("--logs", type=Path, help="folder with labels.json and the logs that it names")
    parser.add_argument("--only", choices=("cost", "alarms", "rules", "detection", "short", "logs"), help="one table")
    arguments = parser.parse_args()
    size = QUICK if arguments.quick else FULL
    print(
        f"{date.today()}, {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"NumPy {np.__version__}"
    )
    parts: dict[str, tuple[str, Callable[[], Iterator[str]]]] = {
        "cost": ("Cost", lambda: cost(size)),
        "alarms": ("False alarms", lambda: false_alarms(size, healthy_runs(size, arguments.logs))),
        "rules": ("False alarms of the rules of others", lambda: false_alarms_of_rules(size, healthy_runs(size, None))),
        "detection": ("Detection", lambda: detection(size)),
        "short": ("Short and sparse logs", lambda: short_logs(size.short, arguments.logs)),
    }
    if arguments.logs is not None:
        parts["logs"] = ("Labelled logs", lambda: labelled(arguments.logs))
    for name, (title, lines) in parts.items():
        if arguments.only in (None, name):
            print(f"\n## {title}\n")
            for line in lines():
                print(line, flush=True)


if __name__ == "__main__":
    main()
