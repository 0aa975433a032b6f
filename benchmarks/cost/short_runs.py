"""What the cadences of a long run cannot show: the first steps of a run, many forwards a step, and very short steps."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from cost.arms import ARMS, FROM_THE_START
from cost.case import Case
from cost.referee import WARM_UP_ROUNDS, Progress, Run, compare


@dataclass(frozen=True)
class ShortRun:
    """One row.

    Args:
        what: its name in the table.
        rounds: steps in all, the warm-up among them.
        from_step: the first step that counts.
    """

    what: str
    case: Case
    rounds: int
    from_step: int = WARM_UP_ROUNDS + 1

    def run(self, progress: Progress) -> list[Run]:
        arms = [ARMS["bare"], ARMS["bare again"], FROM_THE_START]
        return compare(self.case, arms, rounds=self.rounds - WARM_UP_ROUNDS, progress=progress)


SHORT_RUNS = (
    ShortRun("the first 500 steps", Case("3 M", layers=4, width=192, vocab=2048, rows=4, context=128), 500),
    ShortRun(
        "300 forwards a step, after 20 steps",
        Case("0.1 M", layers=1, width=64, vocab=512, rows=2, context=16, forwards=300),
        60,
        from_step=21,
    ),
    ShortRun(
        "steps of a millisecond, after 200",
        Case("0.1 M", layers=1, width=64, vocab=512, rows=1, context=8),
        2000,
        from_step=201,
    ),
)


def short_table(found: Sequence[tuple[ShortRun, Sequence[Run]]]) -> str:
    """Sums over all steps, so that a look counts as often as it happens; ``bare again`` shows the noise."""
    lines = [
        "### Short runs, level standard",
        "",
        "| run | bare step, ms | all steps | median step | bare again, all steps | our entry points |",
        "|---|---|---|---|---|---|",
    ]
    for one, runs in found:
        bare, again, ours = runs
        if ours.failed:
            lines.append(f"| {one.what} | does not run: {ours.failed} | | | | |")
            continue
        base, second, watched = (_seconds(run, one.from_step) for run in (bare, again, ours))
        own = sum(spent[0] for step in ours.facts["own"][one.from_step - 1 :] for spent in step.values())
        pairs = [with_us / alone for with_us, alone in zip(watched, base, strict=True)]
        lines.append(
            f"| {one.what} | {1000 * statistics.median(base):.1f} | {_more(sum(watched) / sum(base))} | "
            f"{_more(statistics.median(pairs))} | {_more(sum(second) / sum(base))} | "
            f"{own / 10 / sum(base):.1f} % |"
        )
    return "\n".join(lines)


def _seconds(run: Run, first: int) -> list[float]:
    return [seconds for number, seconds in zip(run.numbers, run.seconds, strict=True) if number >= first]


def _more(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %"
