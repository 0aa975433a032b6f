"""Attack: a million steps in one watched process; memory, descriptors and threads must stay flat.

They are read at a hundred places. The slope is that of a line through the readings of the last three quarters, because
what keeps the last steps has to fill first.

    python benchmarks/attack_long.py [--steps 1000000] [--every-step] [--json FILE]
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path

READINGS = 100
BOUNDS = {"memory_mb": 20.0, "descriptors": 0.5, "threads": 0.5}
"""What the line may grow by over all steps: one page of a table more or less, and no descriptor or thread at all."""


def read() -> dict[str, float]:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "memory_mb": pages * os.sysconf("SC_PAGE_SIZE") / 1e6,
        "descriptors": float(len(os.listdir("/proc/self/fd"))),
        "threads": float(threading.active_count()),
    }


def train(steps: int, runs_dir: Path, *, every_step: bool) -> list[dict[str, float]]:
    """Train a small model under watch; the readings, with the size of the run folder in MB."""
    import torch

    import steadytrain

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    target = torch.nn.Linear(8, 1).requires_grad_(requires_grad=False)
    readings = []
    with steadytrain.watch(model, optimizer, runs_dir=runs_dir, name="long", every_step=every_step, policy="observe"):
        for step in range(1, steps + 1):
            inputs = torch.randn(4, 8)
            loss = (model(inputs) - target(inputs) + 0.1 * torch.randn(4, 1)).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % (steps // READINGS) == 0:
                gc.collect()
                readings.append({"step": float(step), **read(), "folder_mb": folder_mb(runs_dir)})
                print("  ".join(f"{name} {value:,.1f}" for name, value in readings[-1].items()), flush=True)
    return readings


def folder_mb(folder: Path) -> float:
    """Allocated blocks: a file of the run may have holes."""
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*") if path.is_file()) / 1e6


def slope(readings: list[dict[str, float]], name: str) -> float:
    """What a straight line through the last three quarters of the readings grows by over all steps."""
    kept = readings[len(readings) // 4 :]
    steps, values = [one["step"] for one in kept], [one[name] for one in kept]
    middle, mean = sum(steps) / len(steps), sum(values) / len(values)
    above = sum((step - middle) * (value - mean) for step, value in zip(steps, values, strict=True))
    return above / sum((step - middle) ** 2 for step in steps) * readings[-1]["step"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--every-step", action="store_true", help="record each step, without rest")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the readings here too")
    options = parser.parse_args()
    if options.steps < READINGS:
        parser.error(f"{options.steps}: at least {READINGS} steps")
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="attack-long-") as folder:
        readings = train(options.steps, Path(folder), every_step=options.every_step)
    seconds = time.monotonic() - began
    print(f"\n{options.steps:,} steps in {seconds:.0f} s\n\n| what | at the end | grows by, over all steps | bound |")
    print("|---|---|---|---|")
    grown = {name: slope(readings, name) for name in (*BOUNDS, "folder_mb")}
    for name, value in grown.items():
        print(f"| {name} | {readings[-1][name]:,.1f} | {value:+.2f} | {BOUNDS.get(name, 'none')} |")
    if options.json:
        options.json.write_text(json.dumps(readings, indent=1), encoding="utf-8")
    return 1 if any(grown[name] > bound for name, bound in BOUNDS.items()) else 0


if __name__ == "__main__":
    sys.exit(main())
