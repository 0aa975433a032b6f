"""A long run of very short steps, recorded in bursts: what watching it costs once its allowance is spent.

Arms that take turns step by step would hide how a run spends its time, so each is a process of its own here, and they
take turns run by run. The allowance is set from 20 s to one, or the row would take many minutes.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ALLOWANCE_S = 1.0
COUNTED_FROM = 4000
"""Steps before the counted ones, in each arm: the allowance is spent in them."""

ARMS = ("bare", "paced", "bare again", "every step")
EVERY_STEPS = 8000
"""Counted steps of the arm that records every step."""

TURNS = 3


@dataclass(frozen=True)
class PacedRun:
    """One row: a perceptron of this width, its optimizer, and the counted steps."""

    what: str
    width: int
    optimizer: str
    steps: int


PACED_RUNS = (
    PacedRun("perceptron of two layers, Adam", 32, "Adam", 40_000),
    PacedRun("one layer, SGD", 0, "SGD", 100_000),
)


def paced_table(progress: Callable[[str], None]) -> str:
    """Mean seconds and processor seconds of a step, against the bare one of the same turn."""
    lines = [
        f"### Long runs of very short steps, level standard, after an allowance of {ALLOWANCE_S:g} s",
        "",
        "| run | bare step, ms | recorded steps | time | processor time | bare again, time | every step, time |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in PACED_RUNS:
        found: dict[str, list[dict[str, Any]]] = {arm: [] for arm in ARMS}
        for turn in range(TURNS):
            for arm in ARMS:
                progress(f"{one.what}: {arm}, turn {turn + 1} of {TURNS}")
                found[arm].append(_measured(one, arm))

        def more(arm: str, key: str, of: dict[str, list[dict[str, Any]]] = found) -> str:
            pairs = zip(of[arm], of["bare"], strict=True)
            return f"{100 * (statistics.median(ours[key] / bare[key] for ours, bare in pairs) - 1):+.1f} %"

        bare_ms = 1000 * statistics.median(each["step_s"] for each in found["bare"])
        recorded = statistics.median(each["recorded"] for each in found["paced"])
        lines.append(
            f"| {one.what} | {bare_ms:.2f} | {100 * recorded:.1f} % | {more('paced', 'step_s')} | "
            f"{more('paced', 'processor_s')} | {more('bare again', 'step_s')} | {more('every step', 'step_s')} |"
        )
    return "\n".join(lines)


def _measured(one: PacedRun, arm: str) -> dict[str, Any]:
    steps = EVERY_STEPS if arm == "every step" else one.steps
    line = [sys.executable, __file__, arm, str(one.width), one.optimizer, str(steps)]
    answer: dict[str, Any] = json.loads(subprocess.run(line, capture_output=True, text=True, check=True).stdout)
    return answer


def _train(arm: str, width: int, kind: str, steps: int) -> dict[str, float]:
    import torch
    from torch import nn

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        watcher = None if arm.startswith("bare") else _watcher(Path(folder) / "run", whole=arm == "every step")
        torch.manual_seed(0)
        layers = (nn.Linear(16, width), nn.ReLU(), nn.Linear(width, 1)) if width else (nn.Linear(16, 1),)
        model = nn.Sequential(*layers) if width else layers[0]
        optimizer = getattr(torch.optim, kind)(model.parameters(), lr=1e-3)
        rows = torch.randn(4096, 16)
        targets = rows[:, :1].tanh()
        began = processor = 0.0
        before = 0
        for step in range(COUNTED_FROM + steps):
            if step == COUNTED_FROM:
                began, processor = time.perf_counter(), time.process_time()
                before = _recorded(watcher, step)
            some = torch.randint(0, len(rows), (32,))
            loss = nn.functional.mse_loss(model(rows[some]), targets[some])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        spent = time.perf_counter() - began, time.process_time() - processor
        recorded = _recorded(watcher, COUNTED_FROM + steps) - before
        if watcher is not None:
            watcher.close(ended="finished")
    return {"step_s": spent[0] / steps, "processor_s": spent[1] / steps, "recorded": recorded / steps}


def _watcher(folder: Path, *, whole: bool) -> Any:
    from steadytrain.capture.settings import Settings
    from steadytrain.capture.step.pacing import Pace
    from steadytrain.capture.step.watcher import Watcher
    from steadytrain.detection.run_recorder import recording
    from steadytrain.grouping.catalog import detectors

    pace = None if whole else Pace(allowance_s=ALLOWANCE_S)
    settings = Settings(run_dir=folder, run_name="run", pace=pace)
    return Watcher(settings, tell=lambda text: None, record=recording(detectors()))


def _recorded(watcher: Any, steps: int) -> int:
    return steps if watcher is None or watcher.recorded_steps is None else watcher.recorded_steps


if __name__ == "__main__":
    print(json.dumps(_train(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))))
