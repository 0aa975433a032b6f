"""What watching costs: step time and memory of a GPT on the CPU, bare against watched, and bare against bare.

The arms are processes that compute the same steps from the same seed and take turns, one step each, so that whatever
else the machine does hits all of them alike. A round is one step of every arm, in a new order each time; within a
round the ratio to the bare step is taken, and the median of these ratios is reported. The second bare arm shows what
the measurement itself can tell apart. The losses of all arms must be the same but
for rounding, or there is no table.

    python benchmarks/overhead.py            # both models, several minutes
    python benchmarks/overhead.py --quick    # a smoke test: small model, few rounds, numbers without meaning
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

ROWS, CONTEXT = 8, 256  # 2,048 tokens a step
VOCAB = 8192
WARM_UP_ROUNDS = 3
ANSWER_S_MAX = 120.0


@dataclass(frozen=True)
class Size:
    """A GPT with heads of 64 channels."""

    name: str
    layers: int
    width: int
    rounds: int


SIZES = [Size("10 M", layers=6, width=320, rounds=40), Size("30 M", layers=8, width=512, rounds=24)]
QUICK = [Size("1 M", layers=1, width=64, rounds=5)]
ARMS = ["bare", "bare again", "watched"]
LOSS_TOLERANCE = 1e-4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smoke test")
    parser.add_argument("--rounds", type=int, help="rounds of every model (default: 40 and 24)")
    parser.add_argument("--arm", choices=ARMS, help=argparse.SUPPRESS)
    parser.add_argument("--layers", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--width", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.arm:
        be_an_arm(args.arm, layers=args.layers, width=args.width)
        return
    rows = []
    for size in QUICK if args.quick else SIZES:
        rows.append(measure(size, rounds=args.rounds or size.rounds))
    print(table(rows))


# ---------------------------------------------------------------------------------------------------------- the referee


class Arm:
    """A process that computes steps on demand and says how long each took."""

    def __init__(self, name: str, size: Size) -> None:
        self.name = name
        command = [sys.executable, __file__, "--arm", name, "--layers", str(size.layers), "--width", str(size.width)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.facts = self._answer()

    def step(self) -> dict[str, float]:
        return self._ask("step")

    def end(self) -> dict[str, Any]:
        return self._ask("end")

    def _ask(self, what: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the arm '{self.name}' ended with status {self.process.wait(ANSWER_S_MAX)}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> Arm:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()


def measure(size: Size, *, rounds: int) -> dict[str, Any]:
    """Let the arms take turns, and compare."""
    order = random.Random(0)
    seconds: dict[str, list[float]] = {name: [] for name in ARMS}
    with ExitStack() as stack:
        arms = [stack.enter_context(Arm(name, size)) for name in ARMS]
        for number in range(WARM_UP_ROUNDS + rounds):
            losses = {}
            for arm in order.sample(arms, len(arms)):
                answer = arm.step()
                losses[arm.name] = answer["loss"]
                if number >= WARM_UP_ROUNDS:
                    seconds[arm.name].append(answer["seconds"])
            # With several threads two bare processes may differ in the last bits; bit-identity is for the tests.
            if not all(math.isclose(loss, losses["bare"], rel_tol=LOSS_TOLERANCE) for loss in losses.values()):
                raise SystemExit(f"the arms differ: losses of step {number} are {losses}")
            progress(size, number + 1, WARM_UP_ROUNDS + rounds)
        facts = arms[0].facts
        ends = {arm.name: arm.end() for arm in arms}
    bare = seconds["bare"]
    return {
        "size": size,
        "rounds": rounds,
        "facts": facts,
        "bare_s": statistics.median(bare),
        "watched": median_between([w / b for w, b in zip(seconds["watched"], bare, strict=True)]),
        "noise": median_between([a / b for a, b in zip(seconds["bare again"], bare, strict=True)]),
        "added_s": statistics.median([w - b for w, b in zip(seconds["watched"], bare, strict=True)]),
        "peak": {name: end["peak_bytes"] for name, end in ends.items()},
        "held_bytes": ends["watched"]["held_bytes"],
    }


def median_between(values: list[float]) -> tuple[float, float, float]:
    """The median and an interval that covers the true one in about 95 of 100 repetitions (order statistics)."""
    ordered = sorted(values)
    reach = math.ceil(0.98 * math.sqrt(len(ordered)))
    middle = len(ordered) // 2
    low, high = ordered[max(0, middle - reach)], ordered[min(len(ordered) - 1, middle + reach)]
    return statistics.median(ordered), low, high


def progress(size: Size, done: int, total: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{size.name}: round {done} of {total}", end="\n" if done == total else "", file=sys.stderr, flush=True)


def table(rows: list[dict[str, Any]]) -> str:
    facts = rows[0]["facts"]
    lines = [
        "# What watching costs",
        "",
        f"{cpu_name()}, {os.cpu_count()} CPUs; {date.today().isoformat()}; Python {platform.python_version()}, "
        f"torch {facts['torch']}, {facts['threads']} threads; {ROWS * CONTEXT:,} tokens a step, float32, AdamW.",
        "A ratio is the median over paired steps, with its 95 % interval.",
        "",
        "| model | rounds | bare step | watched / bare | bare / bare | added a step | peak memory, bare | added "
        "| added, bare again | held by steadytrain |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        peak = row["peak"]
        cells = [
            f"{row['facts']['parameters'] / 1e6:.1f} M",
            str(row["rounds"]),
            f"{row['bare_s'] * 1000:.0f} ms",
            ratio(row["watched"]),
            ratio(row["noise"]),
            f"{row['added_s'] * 1000:+.1f} ms",
            f"{peak['bare'] / 1e6:.0f} MB",
            f"{(peak['watched'] - peak['bare']) / 1e6:+.0f} MB",
            f"{(peak['bare again'] - peak['bare']) / 1e6:+.0f} MB",
            f"{row['held_bytes'] / 1e6:.2f} MB",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def ratio(value: tuple[float, float, float]) -> str:
    median, low, high = value
    return f"{median:.3f} ({low:.3f} to {high:.3f})"


def cpu_name() -> str:
    """The processor as Linux names it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()


# -------------------------------------------------------------------------------------------------------------- the arm


def be_an_arm(name: str, *, layers: int, width: int) -> None:
    """Answer "step" with the time and loss of one training step, and "end" with the memory; one line of JSON each."""
    import torch

    torch.manual_seed(0)
    model = gpt(layers=layers, width=width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    with ExitStack() as stack:
        watch = None
        if name == "watched":
            import steadytrain

            runs_dir = stack.enter_context(tempfile.TemporaryDirectory())
            watch = stack.enter_context(steadytrain.watch(model, optimizer, runs_dir=runs_dir))
        parameters = sum(parameter.numel() for parameter in model.parameters())
        say(torch=torch.__version__, threads=torch.get_num_threads(), parameters=parameters)
        for line in sys.stdin:
            if line.strip() == "step":
                started = time.perf_counter()
                loss = train_one_step(model, optimizer)
                say(seconds=time.perf_counter() - started, loss=loss)
            else:
                peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
                say(peak_bytes=peak, held_bytes=watch.memory_bytes if watch else 0)


def say(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


def train_one_step(model: Any, optimizer: Any) -> float:
    import torch

    tokens = torch.randint(VOCAB, (ROWS, CONTEXT + 1))
    loss = model(tokens[:, :-1], tokens[:, 1:])
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return float(loss.item())


def gpt(*, layers: int, width: int) -> Any:
    """A plain pre-norm GPT; built in a function because the referee does without torch."""
    import torch
    import torch.nn.functional as F  # noqa: N812 - the name that everybody uses
    from torch import Tensor, nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, hidden: Tensor) -> Tensor:
            rows, length, _ = hidden.shape
            split = self.qkv(self.norm1(hidden)).view(rows, length, 3, width // 64, 64)
            query, key, value = split.permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
            hidden = hidden + self.out(mixed.transpose(1, 2).reshape(rows, length, width))
            return hidden + self.down(F.gelu(self.up(self.norm2(hidden))))

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token, self.position = nn.Embedding(VOCAB, width), nn.Embedding(CONTEXT, width)
            self.blocks = nn.Sequential(*(Block() for _ in range(layers)))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCAB, bias=False)
            self.head.weight = self.token.weight
            nn.init.normal_(self.token.weight, std=0.02)

        def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
            hidden = self.token(tokens) + self.position(torch.arange(tokens.shape[1]))
            logits = self.head(self.norm(self.blocks(hidden)))
            return F.cross_entropy(logits.flatten(0, 1), labels.flatten())

    return GPT()


if __name__ == "__main__":
    main()
