"""Replicas of one model hold different weights although their gradients are equal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.detectors import RankRule
from steadytrain.statistics.rank_rows import RankRows, rank_rows, ranks_named


@final
@dataclass(frozen=True)
class DivergedReplicas(RankRule):
    """The weights of some ranks differ from those of the others, although all apply the same gradients.

    Means:
        The parameters of each rank have a digest of all their bits in the first steps and then every 16 steps or less
        often. The ranks apply equal gradients, and a digest differs: each computes the gradient of another model, and
        only one of the models will be saved. The message says whether the weights differed from the start, and whether
        the optimizer's state did. Other settings of the optimizer on one rank are reported by `rank-settings`.

    Causes:
        - other weights at the start: no wrapper that broadcasts them, a seed for each rank, a checkpoint on one rank
        - an optimizer state that only one rank loaded
        - a change of weights on one rank: an average, a clamp, a skipped update, a fault of the device

    Next:
        1. Broadcast weights and optimizer state from rank 0 after the start and after each load.
        2. If the weights were equal before: look at what only this rank does between the two steps of the message.
    """

    def check(self, window: Window) -> tuple[Symptom, ...]:
        rows = rank_rows(window)
        if not rows.is_one_model or rows.of_all("sharded"):
            return ()
        apart = {rank: since for rank, since in rows.ranks("weights-apart") if not _explained(rows, rank, since)}
        if not apart:
            return ()
        return (
            Symptom(
                name="diverged-replicas",
                severity="critical",
                first_step=int(min(apart.values())),
                last_step=int(window.steps[-1]),
                message=_message(rows, list(apart), int(min(apart.values()))),
                signals=("ranks.value",),
                numbers={"rank": float(next(iter(apart))), "ranks": float(len(apart))},
            ),
        )


def _explained(rows: RankRows, rank: str, since: float) -> bool:
    """Whether the rank has other gradients, or had other settings before: that is reported in its place."""
    set_apart = (rows.first("rate", rank), rows.first("scale", rank), rows.of("setting-apart", rank))
    return rows.of("gradients-apart", rank) > 0 or any(0 < step <= since for step in set_apart)


def _message(rows: RankRows, ranks: list[str], since: int) -> str:
    names = rows.names_of("weights-apart", ranks)
    what = ", ".join(names) if names else "the weights"
    equal_at = int(rows.of_all("weights-together"))
    state = int(min((step for rank in ranks if (step := rows.of("state-apart", rank))), default=0))
    everywhere = f"on all {rows.of_all('ranks'):.0f} ranks" if rows.of_all("weights-unlike") else ""
    if not equal_at:
        which = f" ({what})" if names else ""
        whose = f"of {ranks_named(ranks)}{which} differed from {rows.others(*ranks)}"
        where = f"differed{which} {everywhere}" if everywhere else whose
        return f"the weights {where} from the start, although gradients are shared"
    whose_state = "its optimizer state" if len(ranks) == 1 else "their optimizer states"
    why = f"; {whose_state} differed before step {state}" if state else ""
    differ = f"differ{'s' if len(names) == 1 else ''}"
    where = f"{differ} {everywhere}" if everywhere else f"on {ranks_named(ranks)} {differ} from {rows.others(*ranks)}"
    return f"{what} {where} at step {since} (last seen equal at step {equal_at}), although gradients are shared{why}"
