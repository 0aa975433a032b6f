"""What a measurement of module outputs costs: steps with and without one take turns in one process.

The model is the GPT of overhead.py. A pair is a bare step and a measured one, in an order that changes; the median of
the paired differences is reported beside the median bare step, and bare against bare to show what can be told apart.

    OMP_NUM_THREADS=1 python benchmarks/activations.py            # 30 M parameters, 2,048 tokens, some minutes
    OMP_NUM_THREADS=1 python benchmarks/activations.py --quick    # a smoke test, numbers without meaning
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import statistics
import time
from collections.abc import Callable
from datetime import date

import torch
from overhead import cpu_name, gpt, train_one_step
from torch import nn

from steadytrain.capture.activations import Activations
from steadytrain.capture.failopen import Guard

EVERY_STEPS = 50
WARM_UP_STEPS = 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smoke test")
    parser.add_argument("--pairs", type=int, default=16, help="pairs of steps for each row")
    args = parser.parse_args()
    torch.manual_seed(0)
    model = gpt(layers=1, width=64) if args.quick else gpt(layers=8, width=512)
    print(table(model, pairs=2 if args.quick else args.pairs))


def table(model: nn.Module, *, pairs: int) -> str:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    activations = Activations(Guard(print))

    def bare() -> None:
        train_one_step(model, optimizer)

    def measured(*, histograms: bool = False) -> None:
        activations.arm([model], histograms=histograms)
        # In a watched run the first backward ends the measurement; here nothing differs if the step does.
        train_one_step(model, optimizer)
        readback = activations.take()
        assert readback is not None
        assert len(readback.result().modules.rows) > 0

    rows: dict[str, Callable[[], None]] = {
        "bare": bare,
        "measured": measured,
        "measured, with histograms": lambda: measured(histograms=True),
    }
    for _ in range(WARM_UP_STEPS):
        bare()
    parameters = sum(parameter.numel() for parameter in model.parameters())
    lines = [
        f"{cpu_name()}, {os.cpu_count()} CPUs, {torch.get_num_threads()} thread; {date.today().isoformat()}; "
        f"Python {platform.python_version()}, torch {torch.__version__}; {parameters / 1e6:.1f} M parameters.",
        "",
        "| step | bare | added | of a step | every 50 steps |",
        "|---|---|---|---|---|",
    ]
    for name, step in rows.items():
        base, added = compare(bare, step, pairs=pairs)
        share = added / base
        cells = [
            name,
            f"{base * 1000:.0f} ms",
            f"{added * 1000:+.1f} ms",
            f"{share:+.2%}",
            f"{share / EVERY_STEPS:+.3%}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def compare(first: Callable[[], None], second: Callable[[], None], *, pairs: int) -> tuple[float, float]:
    """Median seconds of the first, and the median of what the second takes more in its pair."""
    order = random.Random(0)
    firsts, differences = [], []
    for _ in range(pairs):
        taken = {}
        for which, step in order.sample([(0, first), (1, second)], 2):
            started = time.perf_counter()
            step()
            taken[which] = time.perf_counter() - started
        firsts.append(taken[0])
        differences.append(taken[1] - taken[0])
    return statistics.median(firsts), statistics.median(differences)


if __name__ == "__main__":
    main()
