"""Whether the data of a single bad step trigger it, in a sentence with the rows. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from steadytrain.diagnosis.answer import BatchRow
from steadytrain.diagnosis.interventions import DROP_BATCH
from steadytrain.experiments.contrast import Contrast
from steadytrain.experiments.specs import Verdict

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case

ROWS_MAX = 8
ONE_RANK = "one-rank"


def asked_first(case: Case) -> list[str]:
    """The trials that always run after a single bad step: without its batch, and of several ranks with one alone."""
    return [str(DROP_BATCH.trial), *([ONE_RANK] if case.ranks is not None else ())]


def rank_note(verdicts: Mapping[str, Verdict]) -> str:
    """Whether the fault lies between the ranks, "" if the trial was not run or is undecided."""
    verdict = verdicts.get(ONE_RANK)
    if verdict is None or verdict.effect not in ("removed", "persists"):
        return ""
    if verdict.effect == "persists":
        return f"{verdict.why[0].upper()}{verdict.why[1:]}"
    return f"It comes from between the ranks, or from a race: {verdict.why}"


def batch_note(
    verdicts: Mapping[str, Verdict],
    contrasts: Mapping[str, Contrast],
    step: int,
    rows: Iterable[BatchRow],
    rank: int | None = None,
) -> str:
    """What leaving out the batch of ``step`` showed, "" if that was not run or is undecided.

    Args:
        rows: the rows that stand out.
        rank: of several ranks the one that got another batch.
    """
    name = str(DROP_BATCH.trial)
    verdict = verdicts.get(name)
    if verdict is None:
        return ""
    contrast = contrasts.get(name)
    if verdict.effect == "removed" and contrast is not None and not contrast.held:
        return f"Whether the batch of step {step} triggers it is open: {contrast.why}"
    if verdict.effect == "removed":
        some = sorted({one.row for one in rows if one.step == step})[:ROWS_MAX]
        listed = ", ".join(map(str, some))
        named = f" (rows {listed} stand out)" if len(some) > 1 else f" (row {listed} stands out)" if some else ""
        if rank is not None:
            return (
                f"The batch of rank {rank} at step {step} triggers it: with another one there it does not come{named}"
            )
        return f"The data of step {step} trigger it: without that batch it does not come{named}"
    if verdict.effect in ("persists", "worse"):
        return f"The data of step {step} alone do not trigger it: it comes without that batch too"
    return ""
