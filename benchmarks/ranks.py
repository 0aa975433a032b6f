"""Trainings of several ranks, watched: what is reported of each, and what the watch costs.

    python benchmarks/ranks.py                 # every script of benchmarks/ranks_unseen
    python benchmarks/ranks.py --only s04      # those whose name holds this
    python benchmarks/ranks.py --cost          # the CPU time of a step, bare and watched, with 2 and 4 processes
    python benchmarks/ranks.py --growth        # what deciding together costs, up to 10,000 ranks

A broken training counts as found if a symptom above a note, or the message that stops it, matches the expression in its
header. A healthy one counts as quiet if it has no symptom above a note on any rank.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from steadytrain.capture.step.rank_tree import rounds
from steadytrain.core.model import Symptom
from steadytrain.storage.run_folder import open_run

HERE = Path(__file__).parent
SCRIPTS = HERE / "ranks_unseen"
ENDED_APART = re.compile(r"steadytrain: rank \d+ (waited|ended|failed) ")
"""What the first rank says at the end of another one that ended before it."""
LAUNCH_S_MAX = 600.0
HEADER_LINES = 16
STEPS = 400

COST = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
layers = [torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 1024), torch.nn.GELU()]
model = DistributedDataParallel(torch.nn.Sequential(*layers, torch.nn.Linear(1024, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(STEPS):
    inputs = torch.randn(64, 256)
    loss = (model(inputs) - inputs.sum(1, keepdim=True)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
"""


ONE_COLLECTIVE = """
import time
import torch
import torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo")
value = torch.zeros(1)
for _ in range(50):
    dist.all_reduce(value, dist.ReduceOp.MAX)
began = time.perf_counter()
for _ in range(CALLS):
    dist.all_reduce(value, dist.ReduceOp.MAX)
if dist.get_rank() == 0:
    import sys
    print("took", (time.perf_counter() - began) / CALLS, file=sys.stderr)
dist.destroy_process_group()
"""
CALLS = 1000
VALUE_BYTES = 8
"""One int64 a step: how bad the worst gradient of any rank is."""

COMPARED_MAX = 64
"""Ranks whose records are compared; of more, none are."""

ROW_BYTES = 12
"""A digest of a tensor: two halves and a group, as float32."""

SIZES = (2, 4, 8, 64, 512, 4096, 10_000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="only scripts whose name holds this")
    parser.add_argument("--cost", action="store_true", help="measure the cost instead")
    parser.add_argument("--growth", action="store_true", help="extrapolate the collective of a step to many ranks")
    arguments = parser.parse_args()
    if arguments.growth:
        print(growth())
        return
    if arguments.cost:
        for ranks in (2, 4):
            print(cost(ranks), flush=True)
        return
    results = []
    for script in sorted(SCRIPTS.glob("[hs][0-9]*.py")):
        if arguments.only in script.name:
            results.append(judged(script))
            print(*results[-1], flush=True)
    found = [one[1] for one in results if one[0].startswith("s")]
    quiet = [one[1] for one in results if one[0].startswith("h")]
    print(
        f"\nbroken: {found.count('found')} of {len(found)} found; healthy: {quiet.count('quiet')} of {len(quiet)} quiet"
    )


def judged(script: Path) -> tuple[str, str, str]:
    """Name, judgement and what was reported."""
    lines = script.read_text(encoding="utf-8").splitlines()[:HEADER_LINES]
    header = {match[1]: match[2] for line in lines if (match := re.match(r"# (\w+): (.*)", line))}
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(script, folder)
        for _ in range(int(header.get("launches", "1")) - 1):
            launch(folder, header["ranks"], script.name)
        told = launch(folder, header["ranks"], "-m", "steadytrain", "run", "--name", "run", script.name)
        symptoms = of_all(Path(folder) / "steadytrain-runs" / "run")
    loud = [symptom.message for symptom in symptoms if symptom.severity != "note"]
    said = [*loud, *(line for line in told.splitlines() if "STOPPED" in line or ENDED_APART.match(line))]
    first = said[0] if said else ""
    if header["expect"] == "healthy":
        return script.stem, "alarm" if said else "quiet", first
    hit = next((one for one in said if re.search(header["names"], one)), None)
    return script.stem, "found" if hit else "missed", hit or first


def of_all(run_dir: Path) -> list[Symptom]:
    run = open_run(run_dir)
    return [symptom for one in (run, *map(open_run, run.ranks)) for symptom in one.symptoms]


def launch(folder: str, ranks: str, *words: str) -> str:
    """Run under torchrun in ``folder``; what came on stderr."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", ranks, *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LAUNCH_S_MAX, check=False
    )
    return ended.stderr


def growth() -> str:
    """What a rank sends and waits for in a step, by the number of ranks: the tree that is used, whose groups are rings,
    with the time of a message as measured here. Waiting for slower ranks is not in it: the backward's own collective
    has just made them wait."""
    took = {ranks: collective_s(ranks) for ranks in (2, 4)}
    round_s = max(took[ranks] / rounds(ranks) for ranks in took)
    measured = ", ".join(f"{1e6 * one:.0f} us with {ranks}" for ranks, one in took.items())
    lines = [
        f"one all_reduce of {VALUE_BYTES} bytes, gloo on this machine: {measured} processes; "
        f"{1e6 * round_s:.0f} us a message",
        "",
        "| ranks | messages in a row | in one ring | bytes a rank sends at most | time of a step | "
        "first rank reads for a digest of 1,000 tensors |",
        "|---|---|---|---|---|---|",
    ]
    for ranks in SIZES:
        read = ranks * 1000 * ROW_BYTES if ranks <= COMPARED_MAX else 0
        reads = f"{read / 1024:.0f} KiB" if read else "nothing: not compared"
        lines.append(
            f"| {ranks:,} | {rounds(ranks):,} | {2 * (ranks - 1):,} | {rounds(ranks) * VALUE_BYTES:,} | "
            f"{1e3 * round_s * rounds(ranks):.2f} ms | {reads} |"
        )
    return "\n".join(lines)


def collective_s(ranks: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "train.py").write_text(ONE_COLLECTIVE.replace("CALLS", str(CALLS)), encoding="utf-8")
        said = launch(folder, str(ranks), "train.py")
    return next(float(line.split()[1]) for line in said.splitlines() if line.startswith("took "))


def cost(ranks: int) -> str:
    """The CPU time of all ranks for a step, without what a launch of few steps takes."""
    with tempfile.TemporaryDirectory() as folder:
        took: dict[str, float] = {}
        for how, words in (("bare", ()), ("watched", ("-m", "steadytrain", "run"))):
            seconds = []
            for steps in (20, STEPS):
                (Path(folder) / "train.py").write_text(COST.replace("STEPS", str(steps)), encoding="utf-8")
                before = resource.getrusage(resource.RUSAGE_CHILDREN)
                launch(folder, str(ranks), *words, "train.py")
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
            took[how] = 1000 * (seconds[1] - seconds[0]) / (STEPS - 20) / ranks
    more = 100 * (took["watched"] / took["bare"] - 1)
    bare, watched = (f"{took[how]:.2f}" for how in ("bare", "watched"))
    return f"{ranks} processes: {bare} ms of CPU a step and rank bare, {watched} watched ({more:+.1f} %)"


if __name__ == "__main__":
    main()
