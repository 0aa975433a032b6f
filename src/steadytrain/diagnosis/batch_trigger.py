"""Whether the data of a single bad step trigger it, in a sentence with the rows. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from steadytrain.diagnosis.answer import BatchRow
from steadytrain.diagnosis.interventions import DROP_BATCH
from steadytrain.experiments.contrast import Contrast
from steadytrain.experiments.specs import Verdict

ROWS_MAX = 8


def batch_note(
    verdicts: Mapping[str, Verdict], contrasts: Mapping[str, Contrast], step: int, rows: Iterable[BatchRow]
) -> str:
    """What leaving out the batch of ``step`` showed, "" if that was not run or is undecided.

    Args:
        rows: the rows that stand out.
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
        return f"The data of step {step} trigger it: without that batch it does not come{named}"
    if verdict.effect in ("persists", "worse"):
        return f"The data of step {step} alone do not trigger it: it comes without that batch too"
    return ""
