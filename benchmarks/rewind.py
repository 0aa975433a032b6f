"""What the tape and the snapshots cost on the CPU: a GPT of 10 M parameters with AdamW (state of 120 MB).

Three ways take turns in blocks of steps, so that a machine that gets slower does so for all: without, with the tape
alone, with both. Told: the median step of each, the processor time of the two threads, what the training thread itself
waits, and by how much a step in which a snapshot is taken is longer than the steps around it.

Run by ``make bench-rewind``; about three minutes. The machine's load is told with the numbers: with as many busy
processes as cores the thread that writes takes its time from the training.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from steadytrain.capture.settings import Settings
from steadytrain.capture.snapshots.rewind import TAPE_SHARE, Rewind
from steadytrain.capture.snapshots.snapshots import COST_SHARE, EVERY_STEPS, STALL_SHARE, Snapshots
from steadytrain.capture.step.observers import StepObserver
from steadytrain.capture.step.watcher import Watcher
from steadytrain.core.levels import LEVELS
from steadytrain.detection.run_recorder import recording

WIDTH, WORDS, TOKENS, HEADS, BLOCKS = 256, 4096, 64, 4, 10
BYTES_MAX = 4096 * 1_000_000


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.norm_up = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        rows, tokens, _ = x.shape
        q, k, v = self.qkv(self.norm(x)).view(rows, tokens, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(rows, tokens, WIDTH))
        return x + self.down(functional.gelu(self.up(self.norm_up(x))))


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(TOKENS, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(BLOCKS)))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.blocks(self.words(ids) + self.places.weight[: ids.shape[1]]))


@dataclass
class Way:
    """One of the three, over all its blocks."""

    name: str
    steps: list[float] = field(default_factory=list)
    around: list[float] = field(default_factory=list)
    around_cpu: list[float] = field(default_factory=list)
    tape_s: float = 0.0
    writing: list[float] = field(default_factory=list)
    stalls: list[float] = field(default_factory=list)
    taken: int = 0
    asked: int = 0


def observer(way: Way, every: int) -> StepObserver:
    if way.name == "without":
        return StepObserver()
    never = way.name == "tape alone"
    snapshots = Snapshots(int(BYTES_MAX * (1 - TAPE_SHARE)), every_steps=10**9 if never else every, cost_share=math.inf)
    if never:
        snapshots.note = "not asked for"
    return Rewind(BYTES_MAX, note=lambda text: None, keep=False, snapshots=snapshots)


def block(way: Way, model: nn.Module, optimizer: torch.optim.Optimizer, *, steps: int, every: int) -> None:
    """Some steps under a watch of their own; the first two, in which the recorder begins, do not count."""
    with tempfile.TemporaryDirectory() as folder:
        recorder = observer(way, every)
        settings = Settings(Path(folder) / "run", "rewind", level=LEVELS["light"])
        watcher = Watcher(settings, tell=lambda text: None, record=recording(), observer=recorder)
        times, processor, with_snapshot = [], [], []
        for step in range(steps):
            before = recorder.snapshots.asked if isinstance(recorder, Rewind) else 0
            started, worked = time.perf_counter(), time.thread_time()
            ids = torch.randint(0, WORDS, (8, TOKENS))
            loss = functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if step == 1 and isinstance(recorder, Rewind):
                recorder.snapshots.worst_stall_s = 0.0
            if step >= 2:
                times.append(time.perf_counter() - started)
                processor.append(time.thread_time() - worked)
                with_snapshot.append(isinstance(recorder, Rewind) and recorder.snapshots.asked > before)
        if isinstance(recorder, Rewind):
            recorder.snapshots.settle()  # a copy is written at leisure, for longer than the rest of a block
        watcher.close(ended="finished")
        plain = [seconds for seconds, one in zip(times, with_snapshot, strict=True) if not one]
        way.steps += plain
        way.around += _excess(times, with_snapshot)
        way.around_cpu += _excess(processor, with_snapshot)
        if isinstance(recorder, Rewind):
            way.tape_s += recorder.tape.busy_s
            shots = recorder.snapshots
            way.taken, way.asked = way.taken + shots.taken, way.asked + shots.asked
            way.writing.append(shots.busy_s / max(1, shots.asked))
            way.stalls.append(shots.worst_stall_s)


def _excess(seconds: list[float], marked: list[bool]) -> list[float]:
    """How much longer the marked ones are than the median of the others, as a share of it."""
    usual = statistics.median(one for one, mark in zip(seconds, marked, strict=True) if not mark)
    return [one / usual - 1 for one, mark in zip(seconds, marked, strict=True) if mark]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=4, help="blocks of each way")
    parser.add_argument("--steps", type=int, default=34, help="steps a block")
    parser.add_argument("--every", type=int, default=8, help="steps between snapshots here; the default is far rarer")
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    torch.manual_seed(0)
    model = GPT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    ways = [Way("without"), Way("tape alone"), Way("both")]
    block(Way("without"), model, optimizer, steps=4, every=asked.every)
    loads = [os.getloadavg()[0]]
    for _ in range(asked.rounds):
        for way in ways:
            block(way, model, optimizer, steps=asked.steps, every=asked.every)
        loads.append(os.getloadavg()[0])
    report(ways, sum(p.numel() for p in model.parameters()), asked.threads, loads)


def report(ways: list[Way], parameters: int, threads: int, loads: list[float]) -> None:
    plain = statistics.median(ways[0].steps)
    load = f"{min(loads):.1f} to {max(loads):.1f}"
    print(f"{parameters / 1e6:.1f} M parameters, {threads} thread(s), {os.cpu_count()} cores, load {load}")
    for way in ways:
        median = statistics.median(way.steps)
        print(f"  {way.name:<12} median step {median * 1e3:7.1f} ms ({median / plain - 1:+.1%})")
    tape = ways[1].tape_s / len(ways[1].steps)
    print(f"  tape: {tape * 1e3:.2f} ms of processor time a step in its thread ({tape / plain:.2%} of a step)")
    both = ways[2]
    writing = statistics.median(both.writing)
    needed = max(EVERY_STEPS, math.ceil(writing / (COST_SHARE * plain)))
    print(f"  snapshots: {both.taken} whole of {both.asked} begun; {writing * 1e3:.0f} ms of processor time each")
    print(f"    share at the cadence that follows (every {needed} steps): {writing / needed / plain:.2%}")
    bound = STALL_SHARE * plain * 1e3
    print(f"    the training thread waited at most {max(both.stalls) * 1e3:.1f} ms (bound {bound:.1f})")
    if both.around:
        longer, worst = statistics.median(both.around), max(both.around)
        print(f"    a step with one was longer than those around it by {longer:+.1%} (median), {worst:+.1%} (worst)")
        own = statistics.median(both.around_cpu)
        print(f"    and took {own:+.1%} of processor time of the training thread itself")


if __name__ == "__main__":
    main()
