"""The verdict of a run whose gravest symptoms are those of a rank with a much larger loss: its loss comes first."""

from __future__ import annotations

from collections.abc import Sequence

from steadytrain.core.model import SEVERITIES, Symptom
from steadytrain.grouping.one_rank import follows, rank_loss
from steadytrain.report.wording import clean, step_range


def rank_verdict(seen: Sequence[tuple[Symptom, str]]) -> str:
    """The verdict, if all that is graver follows from the loss of one rank; else "".

    Args:
        seen: the symptoms of a run, each with the name of its rank, "" for the first.
    """
    cause = rank_loss(symptom for symptom, _ in seen)
    if cause is None:
        return ""
    rank = int(cause.numbers.get("rank", -1))
    grade = SEVERITIES.index(cause.severity)
    graver = [(one, origin) for one, origin in seen if SEVERITIES.index(one.severity) > grade]
    own = f"rank {rank}" if rank else ""
    if any(origin != own or not follows(one, since=cause.first_step) for one, origin in graver):
        return ""
    followed = ", ".join(dict.fromkeys(f"{clean(one.name)} ({one.severity})" for one, _ in graver))
    more = f"; from it {'follow' if ',' in followed else 'follows'} {followed} on rank {rank}" if followed else ""
    return f"{cause.severity}: {clean(cause.name)} at {step_range(cause)}: {clean(cause.message)}{more}"
