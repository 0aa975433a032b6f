"""What the detectors of loss, gradient norm and step time miss, what they invent, and what they cost.

Four tables: false alarms in 100,000 healthy simulated steps, of whole logs and of a live window that slides; faults of
known size, how many are found and how late; labelled logs of real runs (``--logs DIR``); and the time of a look.
An alarm is a symptom above a note. Seeds are fixed; the numbers are the same on every machine but for the times.

    python benchmarks/detectors.py                      # some minutes
    python benchmarks/detectors.py --logs DIR           # with a folder that holds labels.json and the logs it names
    python benchmarks/detectors.py --quick              # a smoke test: few steps, numbers without meaning
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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from steadytrain.catalog import detector_name, detectors
from steadytrain.model import Symptom, Window
from steadytrain.symptoms import Detector
from steadytrain.testing import steps

FAMILY = (
    "divergence",
    "forgetting",
    "gradient-norm-spike",
    "loss-collapse",
    "loss-spike",
    "no-learning",
    "nonfinite-gradient",
    "nonfinite-loss",
    "oscillation",
    "plateau",
    "throughput-stall",
    "validation-gap",
)

LEVEL, SIGMA = 2.0, 0.04
LOG_NORM_SIGMA = 0.15
TRACE_STEPS = 100_000
LIVE_STEPS, LIVE_WINDOW, LOOK_STEPS = 20_000, 2048, 16
ONSET, AFTER = 5_000, 1_000

Values = NDArray[np.float64]
Generator = np.random.Generator


@dataclass(frozen=True)
class Size:
    """How much is simulated: traces of each noise for whole logs and for the live window, and faults of each kind."""

    traces: int
    live_traces: int
    faults: int
    million: int


FULL = Size(traces=5, live_traces=2, faults=200, million=1_000_000)
QUICK = Size(traces=1, live_traces=0, faults=5, million=20_000)


# Noise.


def gaussian(draw: Generator, count: int) -> Values:
    return draw.standard_normal(count)


def correlated(share: float) -> Callable[[Generator, int], Values]:
    def noise(draw: Generator, count: int) -> Values:
        innovations = draw.standard_normal(count) * (1.0 - share**2) ** 0.5
        values = np.empty(count)
        value = draw.standard_normal()
        for i, innovation in enumerate(innovations.tolist()):
            value = share * value + innovation
            values[i] = value
        return values

    return noise


def lognormal(draw: Generator, count: int) -> Values:
    values: Values = (draw.lognormal(0.0, 0.5, count) - 1.0) / 0.5
    return values


def student(freedom: float) -> Callable[[Generator, int], Values]:
    return lambda draw, count: draw.standard_t(freedom, count)


def falling(draw: Generator, count: int) -> Values:
    """A loss that falls as a power of the step: by 100 sigma in the first thousand steps, by 2 in the last ten."""
    trend = 250.0 * (1.0 + np.arange(count) / 100.0) ** -0.5
    values: Values = trend + draw.standard_normal(count)
    return values


def dropping(draw: Generator, count: int) -> Values:
    """Steep exponential falls that end, one every 2,000 steps: stages of a schedule, each lower than the last."""
    stage = np.arange(count) // 2000
    within = np.arange(count) % 2000
    trend = -4.0 * stage + 40.0 * np.exp(-within / 150.0) * (stage == 0) - 4.0 * (1.0 - np.exp(-within / 60.0))
    values: Values = 200.0 + trend + draw.standard_normal(count)
    return values


def constant(draw: Generator, count: int) -> Values:
    return np.zeros(count)


NOISES: dict[str, Callable[[Generator, int], Values]] = {
    "Gaussian": gaussian,
    "AR(0.3)": correlated(0.3),
    "AR(0.9)": correlated(0.9),
    "lognormal 0.5": lognormal,
    "Student t5": student(5.0),
    "Student t3": student(3.0),
    "falling": falling,
    "falling in stages": dropping,
}


def healthy(kind: str, count: int, *, seed: int, first_step: int = 1) -> Window:
    """A run in which nothing is wrong: all three signals vary with the same kind of noise."""
    draw = np.random.default_rng([seed, *kind.encode()])
    noise = NOISES[kind]
    still = gaussian if kind.startswith("falling") else noise
    return steps(
        first_step=first_step,
        loss=LEVEL + SIGMA * noise(draw, count),
        gradient_norm=np.exp(LOG_NORM_SIGMA * still(draw, count)),
        step_s=0.1 * np.exp(0.1 * still(draw, count)),
    )


# Alarms.


def family() -> list[Detector]:
    return [detector for detector in detectors() if detector_name(type(detector)) in FAMILY]


def alarms(window: Window, looking: Sequence[Detector]) -> list[Symptom]:
    return [symptom for detector in looking for symptom in detector.check(window) if symptom.severity != "note"]


def live_alarms(window: Window, looking: Sequence[Detector]) -> set[tuple[str, int]]:
    """What looks every 16 steps at the newest 2,048 raise, each name and first step once."""
    raised = set()
    for end in range(LOOK_STEPS, len(window) + 1, LOOK_STEPS):
        seen = window.slice(max(0, end - LIVE_WINDOW), end)
        for symptom in alarms(seen, looking):
            if symptom.last_step > seen.steps[-1] - 64:
                raised.add((symptom.name, symptom.first_step))
    return raised


def false_alarms(size: Size) -> Iterator[str]:
    yield "| noise | steps | alarms per 1e5 | by detector | live: steps | alarms per 1e5 |"
    yield "|---|---|---|---|---|---|"
    looking = family()
    whole, live, live_steps = 0, 0, 0
    for kind in NOISES:
        counts: Counter[str] = Counter()
        for seed in range(size.traces):
            counts.update(symptom.name for symptom in alarms(healthy(kind, TRACE_STEPS, seed=seed), looking))
        raised = sum(
            len(live_alarms(healthy(kind, LIVE_STEPS, seed=100 + seed), looking)) for seed in range(size.live_traces)
        )
        looked = size.live_traces * LIVE_STEPS
        whole, live, live_steps = whole + sum(counts.values()), live + raised, live_steps + looked
        by = ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none"
        per = sum(counts.values()) / size.traces / TRACE_STEPS * 1e5
        live_per = f"{raised / looked * 1e5:.1f}" if looked else "-"
        yield f"| {kind} | {size.traces * TRACE_STEPS:,} | {per:.2f} | {by} | {looked:,} | {live_per} |"
    total = size.traces * TRACE_STEPS * len(NOISES)
    live_rate = f"{live / live_steps * 1e5:.2f}" if live_steps else "-"
    yield f"| all | {total:,} | {whole / total * 1e5:.2f} | | {live_steps:,} | {live_rate} |"
    yield ""
    bound = 3e5 / size.traces / TRACE_STEPS
    yield f"No alarm in N steps bounds the rate at 3/N: for one kind of noise {bound:.2g} per 1e5."


# Faults.


def fault(kind: str, count: int) -> Values:
    """What is added to the loss from the onset on, in sigma."""
    after = np.arange(count, dtype=np.float64)
    return {
        "one step +8 sigma": np.where(after < 1, 8.0, 0.0),
        "ten steps +5 sigma": np.where(after < 10, 5.0, 0.0),
        "level +1 sigma": np.full(count, 1.0),
        "level +2 sigma": np.full(count, 2.0),
        "ramp 0.01 sigma a step": 0.01 * after,
        "exp(t/50) - 1 sigma": np.minimum(np.exp(after / 50.0) - 1.0, 500.0),
    }[kind]


FAULTS = (
    "one step +8 sigma",
    "ten steps +5 sigma",
    "level +1 sigma",
    "level +2 sigma",
    "ramp 0.01 sigma a step",
    "exp(t/50) - 1 sigma",
)


def delay(window: Window, looking: Sequence[Detector]) -> float:
    """Steps from the onset to the first alarm; Inf where none was raised for it."""
    found = [
        symptom.numbers.get("alarm_step", symptom.first_step) - ONSET
        for symptom in alarms(window, looking)
        if symptom.last_step >= ONSET
    ]
    return min((late for late in found if late >= 0), default=float("inf"))


def detection(size: Size) -> Iterator[str]:
    looking = [detector for detector in family() if detector_name(type(detector)) in ("loss-spike", "divergence")]
    for kind in ("Gaussian", "AR(0.3)"):
        yield f"{kind} noise, {size.faults} runs of {ONSET + AFTER:,} steps each, fault at step {ONSET:,}:"
        yield ""
        yield "| fault | found, whole log | median delay, steps | found, live window |"
        yield "|---|---|---|---|"
        for name in FAULTS:
            whole, live = [], []
            for seed in range(size.faults):
                draw = np.random.default_rng([7, seed, *kind.encode()])
                loss = LEVEL + SIGMA * NOISES[kind](draw, ONSET + AFTER)
                loss[ONSET - 1 :] += SIGMA * fault(name, AFTER + 1)
                whole.append(delay(steps(loss=loss), looking))
                # The window of a live run at its best moment: 64 steps after the onset of a short fault.
                end = ONSET + (64 if "step" in name.split()[:2] or "steps" in name else 512)
                seen = steps(loss=loss[end - LIVE_WINDOW : end], first_step=end - LIVE_WINDOW + 1)
                live.append(delay(seen, looking))
            found = np.isfinite(whole)
            late = f"{np.median(np.array(whole)[found]):.0f}" if found.any() else "-"
            yield f"| {name} | {found.mean():.1%} | {late} | {np.isfinite(live).mean():.1%} |"
        yield ""


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


def labelled(folder: Path, looking: Sequence[Detector]) -> Iterator[str]:
    yield "| run | label | rows | verdict | symptoms above a note |"
    yield "|---|---|---|---|---|"
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


# Cost.


def cost(size: Size) -> Iterator[str]:
    looking = family()
    yield "| detector | us at 512 steps | us at 2,048 steps |"
    yield "|---|---|---|"
    totals = [0.0, 0.0]
    windows = [
        [healthy("Gaussian", count, seed=seed, first_step=1 if count == 512 else 9000) for seed in range(20)]
        for count in (512, 2048)
    ]
    for detector in looking:
        times = [_median_us(detector, some) for some in windows]
        yield f"| {detector_name(type(detector))} | {times[0]:.0f} | {times[1]:.0f} |"
    for position, some in enumerate(windows):
        spent = []
        for window in some:
            started = time.perf_counter()
            for detector in looking:
                detector.check(window)
            spent.append(time.perf_counter() - started)
        totals[position] = float(np.median(spent)) * 1e6
    yield f"| all, one look (they share a track) | {totals[0]:.0f} | {totals[1]:.0f} |"
    each = [total / LOOK_STEPS for total in totals]
    yield f"| all, each step at a look every {LOOK_STEPS} | {each[0]:.1f} | {each[1]:.1f} |"
    yield ""
    window = healthy("Gaussian", size.million, seed=3)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.perf_counter()
    alarms(window, looking)
    spent_s = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    memory = f"{peak / 1024:.0f} MiB, {before / 1024:.0f} before"
    yield f"{size.million:,} steps in one window: {spent_s:.2f} s; peak memory {memory}"


def _median_us(detector: Detector, windows: Sequence[Window]) -> float:
    """Alone, each window once: nothing of it is remembered."""
    spent = []
    for window in windows:
        started = time.perf_counter()
        detector.check(window)
        spent.append(time.perf_counter() - started)
    return float(np.median(spent)) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a smoke test: few steps, numbers without meaning")
    parser.add_argument("--logs", type=Path, help="folder with labels.json and the logs that it names")
    parser.add_argument("--only", choices=("alarms", "detection", "logs", "cost"), help="one table")
    arguments = parser.parse_args()
    size = QUICK if arguments.quick else FULL
    print(
        f"{date.today()}, {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"NumPy {np.__version__}"
    )
    parts: dict[str, tuple[str, Callable[[], Iterator[str]]]] = {
        "cost": ("Cost", lambda: cost(size)),
        "alarms": ("False alarms", lambda: false_alarms(size)),
        "detection": ("Detection", lambda: detection(size)),
    }
    if arguments.logs is not None:
        parts["logs"] = ("Labelled logs", lambda: labelled(arguments.logs, family()))
    for name, (title, lines) in parts.items():
        if arguments.only in (None, name):
            print(f"\n## {title}\n")
            for line in lines():
                print(line, flush=True)


if __name__ == "__main__":
    main()
