"""Markdown: the table of arms, and where our own time goes."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

from cost.case import KINDS, Case
from cost.referee import WARM_UP_ROUNDS, Run
from cost.summary import Estimate, against, own_time, reads_added

MAPPED_BYTES_TOLD = 1_000_000

HEAD = (
    "| arm | records | whole step | step with a look | added a step | memory added | host reads added |\n"
    "|---|---|---|---|---|---|---|"
)


def heading(runs: Sequence[Run]) -> str:
    facts = runs[0].facts
    return (
        f"{cpu_name()}, {os.cpu_count()} CPUs; {date.today().isoformat()}; Python {platform.python_version()}, "
        f"torch {facts['torch']}, {facts['threads']} threads."
    )


def table(case: Case, runs: Sequence[Run]) -> str:
    """Every arm against its reference; what failed is listed with its reason."""
    by_name = {run.arm.name: run for run in runs}
    bare = by_name["bare"]
    clipping = "gradients clipped by norm" if case.clip else "no clipping"
    lines = [
        f"### {case.name}: {bare.facts['parameters'] / 1e6:.1f} M parameters, {case.tokens:,} tokens a step, "
        f"{case.dtype}, AdamW, {clipping}" + (", compiled" if case.compiled else ""),
        "",
        f"Bare step {1000 * sorted(bare.seconds)[len(bare.seconds) // 2]:.0f} ms; {len(bare.seconds)} rounds.",
        "",
        HEAD,
    ]
    lines += [_row(run, by_name.get(run.arm.against)) for run in runs if run is not bare]
    return "\n".join(lines)


def _row(run: Run, reference: Run | None) -> str:
    if run.failed or reference is None or reference.failed:
        why = run.failed or f"{run.arm.against} did not run"
        return f"| {run.arm.name} | {run.arm.records} | does not run: {why} | | | | |"
    compared = against(run, reference)
    name = run.arm.name if run.arm.against == "bare" else f"{run.arm.name} (against {run.arm.against})"
    cells = [
        name,
        run.arm.records,
        ratio(compared.ratio),
        "" if compared.look_ratio is None else ratio(compared.look_ratio),
        f"{compared.added_ms.value:+.1f} ms ({compared.added_ms.low:+.1f} to {compared.added_ms.high:+.1f})",
        _memory(run, reference),
        _reads(reads_added(run, reference)),
    ]
    return "| " + " | ".join(cells) + " |"


def _memory(run: Run, reference: Run) -> str:
    added, state = run.facts["peak_bytes"] - reference.facts["peak_bytes"], run.facts["state_bytes"]
    mapped = run.facts.get("mapped_bytes", 0) - reference.facts.get("mapped_bytes", 0)
    text = f"{added / 1e6:+.0f} MB ({100 * added / state:+.1f} %)"
    return text if abs(mapped) < MAPPED_BYTES_TOLD else f"{text}, of it {mapped / 1e6:.0f} MB code of libraries"


def _reads(added: dict[str, int]) -> str:
    return " / ".join(str(added[kind]) for kind in KINDS if kind in added)


def ratio(estimate: Estimate) -> str:
    return f"{estimate.value:.3f} ({estimate.low:.3f} to {estimate.high:.3f})"


def own_table(case: Case, runs: Sequence[Run], *, clock: int = 0) -> str:
    """Time inside our own entry points, by part."""
    bare = next(run for run in runs if run.arm.name == "bare")
    times = bare.processor_s if clock else bare.seconds
    step_ms = 1000 * sorted(times)[len(times) // 2]
    lines = [
        f"Inside our own entry points, {'processor' if clock else 'wall-clock'} ms of the training thread, "
        f"{case.name}{'' if case.clip else ', no clipping'}:",
        "",
        "| level | part | ordinary step | step with a look | with histograms | over its cadences | share of the step |",
        "|---|---|---|---|---|---|---|",
    ]
    for run in runs:
        if not run.arm.is_ours or run.failed:
            continue
        parts = own_time(run, WARM_UP_ROUNDS, clock=clock)
        total = sum(own.a_step for own in parts)
        lines.append(f"| {run.arm.name} | all | | | | {total:.2f} | {100 * total / step_ms:.2f} % |")
        for own in parts:
            kinds = [f"{own.by_kind[kind]:.2f}" if kind in own.by_kind else "" for kind in KINDS]
            lines.append(
                f"| | {own.part} | {' | '.join(kinds)} | {own.a_step:.2f} | {100 * own.a_step / step_ms:.2f} % |"
            )
    return "\n".join(lines)


def as_json(case: Case, runs: Sequence[Run]) -> dict[str, Any]:
    """All that was measured, for whoever wants to compute something else of it."""
    return {
        "case": vars(case),
        "arms": [
            {
                "name": run.arm.name,
                "records": run.arm.records,
                "look_every": run.arm.look_every,
                "rare_every": run.arm.rare_every,
                "failed": run.failed,
                "rounds": run.numbers,
                "seconds": run.seconds,
                "processor_s": run.processor_s,
                "losses": run.losses,
                "host_reads": run.reads,
                "synchronisations": run.waits,
                "facts": run.facts,
            }
            for run in runs
        ],
    }


def cpu_name() -> str:
    """The processor as Linux names it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()
