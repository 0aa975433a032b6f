"""What a measurement of module outputs costs: steps with and without one take turns in one process, on one thread.

The model is the GPT of overhead.py. A pair is a bare step and a measured one, in an order that changes; the median of
the paired differences in processor time stands beside the time that passes inside our own functions alone. Bare against
bare shows what can be told apart.

    OMP_NUM_THREADS=1 python benchmarks/activations.py            # 30 M parameters, 2,048 tokens, some minutes
    OMP_NUM_THREADS=1 python benchmarks/activations.py --compiled # what compiled graphs that compute them cost
    OMP_NUM_THREADS=1 python benchmarks/activations.py --quick    # a smoke test, numbers without meaning
"""

from __future__ import annotations

import argparse
import functools
import os
import platform
import random
import statistics
import time
from collections.abc import Callable
from datetime import date
from typing import Any

import torch
from cost.case import Case
from cost.gpt import GPT
from cost.table import cpu_name

from steadytrain.capture.hooks.fail_open import Guard
from steadytrain.capture.tensors.activations import Activations

EVERY_STEPS = 50
WARM_UP_STEPS = 2
ENTRY_POINTS = ("arm", "_call_begins", "_call_ends", "_function_called", "take")

clock = time.thread_time


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smoke test")
    parser.add_argument("--compiled", action="store_true", help="statistics inside graphs of inductor, in every step")
    parser.add_argument("--pairs", type=int, default=8, help="pairs of steps for each row")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    case = Case("quick", layers=1, width=64) if args.quick else Case("30 M", layers=8, width=512)
    pairs = 2 if args.quick else args.pairs
    print(compiled_table(case, pairs=pairs) if args.compiled else table(case, pairs=pairs))


def table(case: Case, *, pairs: int) -> str:
    model = GPT(case)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    own = OwnTime()
    activations = Activations(Guard(print))

    def bare() -> None:
        tokens = torch.randint(case.vocab, (case.rows, case.context + 1))
        model(tokens[:, :-1], tokens[:, 1:]).backward()
        optimizer.step()
        optimizer.zero_grad()

    def measured(*, histograms: bool = False) -> None:
        activations.arm([model], histograms=histograms)
        bare()
        readback = activations.take()
        assert readback is not None
        assert "blocks.0" in readback.result().modules.rows

    rows: dict[str, Callable[[], None]] = {
        "bare": bare,
        "measured": measured,
        "measured, with histograms": functools.partial(measured, histograms=True),
    }
    for step in rows.values():
        for _ in range(WARM_UP_STEPS):
            step()
    lines = [
        *heading(case, model, pairs=pairs),
        f"| step | bare step | added | in our functions | of a step | every {EVERY_STEPS} steps |",
        "|---|---|---|---|---|---|",
    ]
    for name, step in rows.items():
        own.seconds.clear()
        base, added = compare(bare, step, own, pairs=pairs)
        inside = statistics.median(own.seconds)
        times = [f"{base * 1000:.0f} ms", f"{added * 1000:+.1f} ms", f"{inside * 1000:.1f} ms"]
        lines.append(f"| {name} | {' | '.join(times)} | {inside / base:.2%} | {inside / base / EVERY_STEPS:.3%} |")
    return "\n".join(lines)


def compiled_table(case: Case, *, pairs: int) -> str:
    """The same model from the same seed, compiled twice: without slots and with them."""
    bare, ours = [CompiledTwin(case, in_graph=in_graph) for in_graph in (False, True)]
    for twin in (ours, bare):  # the other way round the second would use the graph of the first
        for _ in range(WARM_UP_STEPS):
            twin.step()
    base, added = compare(bare.step, ours.step, OwnTime(), pairs=pairs)
    stats = torch._dynamo.utils.counters
    assert stats["stats"]["unique_graphs"] == 2, "one graph each"
    lines = [
        *heading(case, bare.model, pairs=pairs),
        "| compiled by inductor | bare step | added | of a step | graphs of both | breaks | losses |",
        "|---|---|---|---|---|---|---|",
        f"| statistics in the graph | {base * 1000:.0f} ms | {added * 1000:+.1f} ms | {added / base:+.2%} "
        f"| {stats['stats']['unique_graphs']} | {len(stats['graph_break'])} "
        f"| {'the same bits' if bare.losses == ours.losses else 'not the same bits'} |",
    ]
    return "\n".join(lines)


class CompiledTwin:
    """Trains on batches of its own generator, so that twins that take turns see the same ones."""

    def __init__(self, case: Case, *, in_graph: bool) -> None:
        torch.manual_seed(0)
        self.model, self.losses, self._case = GPT(case), list[float](), case
        self._batches = torch.Generator().manual_seed(0)
        self._optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self._activations = Activations(Guard(print), in_graph=in_graph)
        self._activations.compile_called(self.model)
        self._call = torch.compile(self.model)

    def step(self) -> None:
        shape = (self._case.rows, self._case.context + 1)
        tokens = torch.randint(self._case.vocab, shape, generator=self._batches)
        loss = self._call(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        self._optimizer.step()
        self._optimizer.zero_grad()
        self.losses.append(loss.item())


def heading(case: Case, model: torch.nn.Module, *, pairs: int) -> list[str]:
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return [
        f"{cpu_name()}, {os.cpu_count()} CPUs, {torch.get_num_threads()} thread; {date.today().isoformat()}; "
        f"Python {platform.python_version()}, torch {torch.__version__}; {parameters / 1e6:.1f} M parameters, "
        f"{case.tokens:,} tokens, {pairs} pairs.",
        "",
    ]


class OwnTime:
    """Sums up the time inside :data:`ENTRY_POINTS` of a step; wrap them before the object is made."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._sum = 0.0
        for name in ENTRY_POINTS:
            setattr(Activations, name, self._timed(getattr(Activations, name)))

    def step_ends(self) -> None:
        self.seconds.append(self._sum)
        self._sum = 0.0

    def _timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            started = clock()
            result = function(*args, **kwargs)
            self._sum += clock() - started
            return result

        return timed


def compare(first: Callable[[], None], second: Callable[[], None], own: OwnTime, *, pairs: int) -> tuple[float, float]:
    """Median seconds of the first, and the median of what the second takes more in its pair."""
    order = random.Random(0)
    firsts, differences = [], []
    for _ in range(pairs):
        taken = {}
        own.step_ends()
        own.seconds.pop()
        for which, step in order.sample([(0, first), (1, second)], 2):
            started = clock()
            step()
            taken[which] = clock() - started
        own.step_ends()
        firsts.append(taken[0])
        differences.append(taken[1] - taken[0])
    return statistics.median(firsts), statistics.median(differences)


if __name__ == "__main__":
    main()
