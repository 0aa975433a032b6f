"""Ranks that hold one model update it with different gradients."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import RankRule
from steadytrain.statistics.rank_rows import RankRows, rank_rows, ranks_named


@final
@dataclass(frozen=True)
class UnsharedGradients(RankRule):
    """A rank updates its replica with gradients that are not those of the others.

    Means:
        The gradient norms of each step were compared over the ranks. Replicas of one model need equal gradients:
        otherwise they become different models, and the checkpoint holds one of them. It is critical if the gradients
        were equal before, or if a data-parallel wrapper holds the model. Ranks that never had equal gradients may train
        alone on purpose, so they need 64 steps, and the finding is a warning. Nothing is reported where the weights
        become equal again, as they do when they are averaged every few steps, or where the models never were equal. A
        rank whose loss scale differs is reported by `rank-settings`.

    Causes:
        - gradients that are never reduced, or not in a branch that one rank takes
        - a forward outside the wrapper, such as `model.module(x)`; `no_sync` around the last micro-batch
        - a parameter that was added after the wrapper was made

    Next:
        1. Look at the first step in which they differ, and at what the rank does there that the others do not.
        2. Wrap the model in `DistributedDataParallel` and call the wrapper, or reduce every gradient on every rank.
    """

    steps_min: int = threshold(8, "steps in a row with other gradients, where they had been equal or should be")
    unseen_min: int = threshold(24, "the same if no digest has shown yet that the weights differ")
    alone_min: int = threshold(64, "the same where the ranks may train alone. Averages of weights are usually closer")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        rows = rank_rows(window)
        shared, equal_at = rows.of_all("gradients-together"), rows.of_all("weights-together")
        if not (shared or equal_at):
            return ()
        was_shared = bool(rows.of_all("wrapped")) or shared >= self.steps_min
        apart = {
            rank: since
            for rank, since in rows.ranks("gradients-apart")
            if rows.of_all("compared") - since + 1 >= self._steps(rows, rank, was_shared=was_shared)
            and max(equal_at, rows.of_all("averaged")) <= since
            and not 0 < rows.first("scale", rank) <= since
        }
        if not apart:
            return ()
        since = min(apart.values())
        return (
            Symptom(
                name="unshared-gradients",
                severity="critical" if was_shared else "warning",
                first_step=int(since),
                last_step=int(window.steps[-1]),
                message=_message(rows, list(apart), int(since)),
                signals=("ranks.value",),
                numbers={
                    "rank": float(next(iter(apart))),
                    "ranks": float(len(apart)),
                    "steps": rows.of_all("compared") - since + 1,
                },
            ),
        )

    def _steps(self, rows: RankRows, rank: str, *, was_shared: bool) -> float:
        """How many steps in a row have to differ."""
        differ = rows.of("weights-apart", rank) > 0
        if not was_shared:
            return self.alone_min if differ else math.inf
        return self.steps_min if differ else self.unseen_min


def _message(rows: RankRows, ranks: list[str], since: int) -> str:
    names = rows.names_of("gradients-apart", ranks)
    what = f"the gradients of {', '.join(names)}" if names else "the gradients"
    if rows.of_all("gradients-unlike"):
        where = f"differ on all {rows.of_all('ranks'):.0f} ranks since step {since}"
        return f"{what} {where}: they are not shared, and the replicas become different models"
    where = f"on {ranks_named(ranks)} differ from {rows.others(*ranks)} since step {since}"
    return f"{what} {where}: the replicas become different models"
