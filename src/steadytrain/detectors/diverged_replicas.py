"""Replicas of one model hold different weights although their gradients are equal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.detectors import RankRule
from steadytrain.statistics.rank_rows import RankRows, rank_rows


@final
@dataclass(frozen=True)
class DivergedReplicas(RankRule):
    """The weights of a rank differ from those of the others, although all apply the same gradients.

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
        found = []
        for rank, since in rows.ranks("weights-apart"):
            set_apart = [rows.of(measure, rank) for measure in ("rate-apart", "scale-apart", "setting-apart")]
            if rows.of("gradients-apart", rank) or any(0 < step <= since for step in set_apart):
                continue
            found.append(
                Symptom(
                    name="diverged-replicas",
                    severity="critical",
                    first_step=int(since),
                    last_step=int(window.steps[-1]),
                    message=_message(rows, rank, int(since)),
                    signals=("ranks.value",),
                    numbers={"rank": float(rank)},
                )
            )
        return tuple(found[:1])


def _message(rows: RankRows, rank: str, since: int) -> str:
    names = rows.names("weights-apart", rank)
    what = ", ".join(names) if names else "the weights"
    equal_at, state = int(rows.of_all("weights-together")), int(rows.of("state-apart", rank))
    if not equal_at:
        which = f" ({what})" if names else ""
        begin = f"the weights of rank {rank}{which} differed from {rows.others(rank)} from the start"
        return f"{begin}, although gradients are shared"
    why = f"; its optimizer state differed before step {state}" if state else ""
    return (
        f"{what} on rank {rank} differ{'s' if len(names) == 1 else ''} from {rows.others(rank)} at step {since} "
        f"(last seen equal at step {equal_at}), although gradients are shared{why}"
    )
