"""Replicas of one model, or of a part of it, hold different weights or buffers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.detectors import RankRule
from steadytrain.statistics.rank_rows import NAMES_MAX, RankRows, rank_rows, ranks_named


@final
@dataclass(frozen=True)
class DivergedReplicas(RankRule):
    """The weights or buffers of some ranks differ from those of the others, although all should hold the same.

    Means:
        Parameters and buffers of each rank have a digest of all their bits in the first steps and then every 16 steps
        or less often. Ranks that apply equal gradients are compared, and where a model is split over a device mesh the
        ranks that hold the same part: plain parameters, and tensors that are replicated in a dimension of the mesh. A
        digest differs: each rank computes the gradient of another model, and only one of the models will be saved. The
        message says whether the weights differed from the start, and whether the optimizer's state did. Buffers count
        if the ranks had them in common while they changed, or if a constant one changes on some ranks only; those that
        each rank computes from its own batches do not. Other settings of the optimizer on one rank are reported by
        `rank-settings`.

    Causes:
        - other weights at the start: no wrapper that broadcasts them, a seed for each rank, a checkpoint on one rank
        - an optimizer state that only one rank loaded
        - under tensor parallelism: another random seed on each rank, so that dropout differs where the activations are
          replicated; a gradient that is not reduced over the mesh
        - a change of weights on one rank: an average, a clamp, a skipped update, a fault of the device

    Next:
        1. Broadcast weights and optimizer state from rank 0 after the start and after each load.
        2. If the weights were equal before: look at what only this rank does between the two steps of the message.
    """

    def check(self, window: Window) -> tuple[Symptom, ...]:
        rows = rank_rows(window)
        if not rows.is_one_model:
            return ()
        for measure, message in (("weights-apart", _message), ("buffers-apart", _of_buffers)):
            apart = {rank: since for rank, since in rows.ranks(measure) if not _explained(rows, rank, since)}
            if apart:
                since = int(min(apart.values()))
                return (
                    Symptom(
                        name="diverged-replicas",
                        severity="critical" if measure == "weights-apart" else "warning",
                        first_step=since,
                        last_step=int(window.steps[-1]),
                        message=message(rows, list(apart), since),
                        signals=("ranks.value",),
                        numbers={"rank": float(next(iter(apart))), "ranks": float(len(apart))},
                    ),
                )
        return ()


def _explained(rows: RankRows, rank: str, since: float) -> bool:
    """Whether the rank has other gradients, or had other settings before: that is reported in its place."""
    set_apart = (rows.first("rate", rank), rows.first("scale", rank), rows.of("setting-apart", rank))
    return rows.of("gradients-apart", rank) > 0 or any(0 < step <= since for step in set_apart)


def _message(rows: RankRows, ranks: list[str], since: int) -> str:
    names, count = _names(rows, ranks)
    what = ", ".join(names) if names else "the weights"
    what += f" and {count - len(names)} more" if names and count > len(names) else ""
    is_split = bool(rows.of_all("sharded"))
    why = f"although {'it is' if count == 1 else 'they are'} replicated" if is_split else SHARED
    equal_at = int(rows.of_all("weights-together"))
    everywhere = f"on all {rows.of_all('ranks'):.0f} ranks" if rows.of_all("weights-unlike") else ""
    if not equal_at:
        which = f" ({what})" if names else ""
        whose = f"of {ranks_named(ranks)}{which} differed from {rows.others(*ranks)}"
        where = f"differed{which} {everywhere}" if everywhere else whose
        return f"the weights {where} from the start, {why}"
    differ = f"differ{'s' if names and count == 1 else ''}"
    where = f"{differ} {everywhere}" if everywhere else f"on {ranks_named(ranks)} {differ} from {rows.others(*ranks)}"
    state = _state_before(rows, ranks, since + (not is_split))
    return f"{what} {where} at step {since} (last seen equal at step {equal_at}), {why}{state}"


SHARED = "although gradients are shared"


def _names(rows: RankRows, ranks: list[str]) -> tuple[list[str], int]:
    """The parameters that differ, the first ones where they are many, and their number; none if that would be all of a
    replica."""
    count = int(max((rows.of("weights-count", rank) for rank in ranks), default=0.0))
    if not count:
        names = rows.names_of("weights-apart", ranks)
        return names, len(names)
    first = max(ranks, key=lambda rank: rows.of("weights-count", rank))
    return rows.names("weights-apart", first), count


def _state_before(rows: RankRows, ranks: list[str], since: int) -> str:
    """That the states of the optimizers differed, if they did before step ``since``."""
    state = int(min((step for rank in ranks if (step := rows.of("state-apart", rank))), default=0))
    whose = "its optimizer state" if len(ranks) == 1 else "their optimizer states"
    return f"; {whose} differed before step {state}" if 0 < state < since else ""


def _of_buffers(rows: RankRows, ranks: list[str], since: int) -> str:
    names = list(dict.fromkeys(name for rank in ranks for name in rows.names("buffers-apart", rank)))[:NAMES_MAX]
    what = f"the buffer{'s' if len(names) > 1 else ''} {', '.join(names)}" if names else "several buffers"
    differ = "differs" if len(names) == 1 else "differ"
    where = f"{what} on {ranks_named(ranks)} {differ} from {rows.others(*ranks)} at step {since}"
    return f"{where}, although the ranks had {'it' if len(names) == 1 else 'them'} in common before"
