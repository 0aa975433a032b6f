"""What watching costs on a GPU: step time, memory, host reads and synchronisations of a GPT in bfloat16.

    make bench-gpu                              # 124 M and 1.3 B parameters, eager and compiled; under eight minutes
    python benchmarks/overhead_gpu.py --smoke   # its logic on the CPU; what needs CUDA is listed as absent

Beside the table of ``overhead.py``: how many synchronisations each arm adds, counted by the profiler, and how much of
the bandwidth of a copy the kernel for tensor statistics reaches. Without a GPU it ends with status 2.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cost.arms import ARMS, BARE, Arm
from cost.case import KINDS, ORDINARY, RARE_EVERY, Case
from cost.referee import ArmFailedError, Run, compare
from cost.table import as_json, heading, table
from overhead import QUICK, chosen, progress

ROUNDS = 2 * RARE_EVERY
TIME_S_MAX = 420.0
"""By default no case is begun after that; the rest is listed as left out."""

AT_ONCE_MAX = 12
COPY_BYTES = 1 << 30
REPEATS = 20
OWN = ("steadytrain light", "steadytrain standard", "steadytrain full", "norm().item() loop")


@dataclass(frozen=True)
class GpuCase:
    """``arm_gib`` of the device's memory are enough for one arm, compiled or not."""

    case: Case
    arms: tuple[str, ...]
    arm_gib: float

    def at_once(self) -> int:
        """How many arms fit the memory together: both bare ones and at least one more."""
        return max(3, min(AT_ONCE_MAX, int(memory_gib() / self.arm_gib)))


SMALL = Case("124 M", 12, 768, vocab=50304, rows=8, context=1024, device="cuda", dtype="bfloat16")
LARGE = Case("1.3 B", 24, 2048, vocab=50304, rows=4, context=1024, device="cuda", dtype="bfloat16")
CASES = (
    GpuCase(SMALL, tuple(ARMS), arm_gib=9),
    GpuCase(replace(SMALL, compiled=True), OWN, arm_gib=9),
    GpuCase(LARGE, OWN, arm_gib=25),
    GpuCase(replace(LARGE, compiled=True), OWN[:3], arm_gib=25),
)
SMOKE = (GpuCase(replace(QUICK, dtype="bfloat16"), OWN, arm_gib=1),)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="on the CPU, small, numbers without meaning")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"timed rounds of every case (default: {ROUNDS})")
    parser.add_argument("--arms", help="names with commas between; by default those that each case can bear")
    parser.add_argument("--seconds", type=float, default=TIME_S_MAX, help="no case is begun after that (default: 420)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all that was measured")
    args = parser.parse_args()
    import torch

    if not args.smoke and not torch.cuda.is_available():
        parser.exit(2, "overhead_gpu: no CUDA device here; --smoke exercises the benchmark on the CPU\n")
    try:
        only = None if args.arms is None else [arm.name for arm in chosen(args.arms)]
    except ValueError as error:
        parser.exit(2, f"overhead_gpu: {error}\n")
    began, measured = time.monotonic(), []
    for gpu_case in SMOKE if args.smoke else CASES:
        case = gpu_case.case
        if time.monotonic() - began > args.seconds:
            print(f"### {name_of(case)}: left out, {args.seconds:.0f} s are over\n")
            continue
        arms = [arm for arm in chosen(",".join(gpu_case.arms)) if only is None or arm.name in only]
        try:
            groups = [
                compare(case, group, rounds=args.rounds, progress=progress)
                for group in grouped([arm for arm in arms if arm.compiles or not case.compiled], gpu_case.at_once())
            ]
        except ArmFailedError as error:
            print(f"### {name_of(case)}: nothing to compare with, the bare arm failed: {error}\n")
            continue
        for runs in groups:
            if not measured:
                print(f"## What watching costs on a GPU\n\n{heading(runs)} {device_name()}.\n")
            print(table(case, runs), end="\n\n")
            print(waits_table(runs), end="\n\n", flush=True)
            measured.append(as_json(case, runs))
    print(kernel_table())
    if args.json:
        args.json.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")


def name_of(case: Case) -> str:
    return f"{case.name}{', compiled' if case.compiled else ''}"


def grouped(arms: Sequence[Arm], at_once: int) -> list[list[Arm]]:
    """As many at once as fit, the bare ones in every group; an arm stays with the one that it is compared with."""
    bare = [arm for arm in arms if arm.name in BARE]
    others = [arm for arm in arms if arm.name not in BARE]
    heads = [arm for arm in others if arm.against in BARE]
    together = [[head, *(arm for arm in others if arm.against == head.name)] for head in heads]
    groups: list[list[Arm]] = [[*bare]]
    for some in together:
        if len(groups[-1]) + len(some) > at_once and len(groups[-1]) > len(bare):
            groups.append([*bare])
        groups[-1] += some
    return groups


def waits_table(runs: Sequence[Run]) -> str:
    """Synchronisations of the driver in one step: all waits, and copies to memory that is not pinned."""
    bare = runs[0].waits.get(ORDINARY)
    if bare is None:
        return "Synchronisations: absent, they need CUDA."
    lines = [
        f"Synchronisations a step, counted by the profiler; the bare step has {bare}. By kind of step "
        "(ordinary / with a look / with histograms):",
        "",
        "| arm | added |",
        "|---|---|",
    ]
    for run in runs[1:]:
        found = " / ".join(f"{run.waits[kind] - bare:+d}" for kind in KINDS if kind in run.waits)
        lines.append(f"| {run.arm.name} | {found or 'does not run'} |")
    return "\n".join(lines)


def memory_gib() -> float:
    """All memory of the device; of the host where there is none."""
    import torch

    return torch.cuda.get_device_properties(0).total_memory / 2**30 if torch.cuda.is_available() else 8.0


def device_name() -> str:
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else "No GPU"


def kernel_table() -> str:
    """The statistics kernel against the bandwidth of a copy, on tensors of the shapes of both models."""
    import torch

    if not torch.cuda.is_available():
        return "Statistics kernel: absent, it needs CUDA."
    copied = _seconds(_copy(torch))
    bandwidth = 2 * COPY_BYTES / copied  # read and written
    lines = [
        f"Statistics kernel; a copy of {COPY_BYTES >> 20} MiB moves {bandwidth / 1e9:.0f} GB/s.",
        "",
        "| tensors | with histogram | ms | GB/s | share of a copy |",
        "|---|---|---|---|---|",
    ]
    for case in (SMALL, LARGE):
        for histogram in (False, True):
            size, call = _kernel(torch, case, histogram=histogram)
            seconds = _seconds(call)
            cells = [
                f"gradients of {case.name}, {case.dtype}",
                "yes" if histogram else "no",
                f"{1000 * seconds:.3f}",
                f"{size / seconds / 1e9:.0f}",
                f"{100 * size / seconds / bandwidth:.0f} %",
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _copy(torch: Any) -> Any:
    source = torch.ones(COPY_BYTES, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def _kernel(torch: Any, case: Case, *, histogram: bool) -> tuple[int, Any]:
    """Bytes that one call reads, and the call."""
    from cost.gpt import GPT

    from steadytrain.capture.tensors.statistics.triton_kernel import Table

    with torch.device("meta"):
        shapes = [parameter.shape for parameter in GPT(case).parameters()]
    dtype = getattr(torch, case.dtype)
    tensors = [torch.randn(shape, dtype=dtype, device="cuda") for shape in shapes]
    of_device = Table([tensor.numel() for tensor in tensors], dtype, tensors[0].device)
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    return size, lambda: of_device.summarise(tensors, histogram=histogram)


def _seconds(call: Any) -> float:
    """The median time of one call on the GPU, by its own events."""
    import torch

    call()
    times = []
    for _ in range(REPEATS):
        begins, ends = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begins.record()
        call()
        ends.record()
        ends.synchronize()
        times.append(begins.elapsed_time(ends) / 1000)
    return sorted(times)[len(times) // 2]


if __name__ == "__main__":
    sys.exit(main())
