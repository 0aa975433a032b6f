"""Ranks that train one model have different settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import RankRule
from steadytrain.statistics.rank_rows import RankRows, rank_rows


@final
@dataclass(frozen=True)
class RankSettings(RankRule):
    """A rank trains with another learning rate, loss scale or optimizer setting than the others.

    Means:
        The ranks train one model: they share gradients or a data-parallel wrapper. With other settings one rank makes
        other updates from the same gradients, so the weights of the ranks differ from the next step on. The finding is
        critical once they do.

    Causes:
        - a schedule that one rank steps more often, or that depends on the rank's own loss or data
        - a configuration that only one rank read; a scaler for each rank that sees only its own overflows
        - a checkpoint of the optimizer or the schedule that only one rank loaded

    Next:
        1. Print the optimizer's groups on each rank at the step of the message.
        2. Decide on rank 0 and broadcast the result.
    """

    steps_min: int = threshold(4, "steps in a row with other values: a schedule may be stepped a moment later")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        rows = rank_rows(window)
        if not rows.is_one_model:
            return ()
        found = []
        for measure, what in (("rate", "learning rate"), ("scale", "loss scale"), ("setting", "")):
            for rank, since in rows.ranks(f"{measure}-apart"):
                if rows.of_all("compared") - since + 1 < self.steps_min:
                    continue
                apart = rows.of("weights-apart", rank)
                found.append(
                    Symptom(
                        name="rank-settings",
                        severity="critical" if apart else "warning",
                        first_step=int(since),
                        last_step=int(window.steps[-1]),
                        message=f"{_difference(rows, rank, measure, what)} since step {int(since)}"
                        + (f"; its weights differ since step {int(apart)}" if apart else ""),
                        signals=("ranks.value",),
                        numbers={"rank": float(rank), "of_loss_scale": float(measure == "scale")},
                    )
                )
        return tuple(found[:1])


def _difference(rows: RankRows, rank: str, measure: str, what: str) -> str:
    if measure == "setting":
        names = ", ".join(rows.names("setting-apart", rank)) or "other settings"
        return f"rank {rank} trains with another {names} than {rows.others(rank)}"
    own, usual = rows.of(measure, rank), rows.of(measure, "usual")
    return f"rank {rank} trains with {what} {own:.4g}, {rows.others(rank)} with {usual:.4g}"
