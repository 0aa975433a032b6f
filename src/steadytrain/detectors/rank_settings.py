"""Ranks that train one model have different settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import RankRule
from steadytrain.statistics.rank_rows import RankRows, rank_rows, ranks_named

VALUES_MAX = 4


@final
@dataclass(frozen=True)
class RankSettings(RankRule):
    """A rank trains with another learning rate, loss scale or optimizer setting than the others.

    Means:
        The ranks train one model: they share gradients or a data-parallel wrapper. With other settings one rank makes
        other updates from the same gradients, so the weights of the ranks differ from the next step on. The finding is
        critical once they do. A value that differs in single steps only is reported if the weights differ after it. A
        loss scale that differs only after the gradients did is reported by `unshared-gradients`.

    Causes:
        - a schedule that one rank steps more often, or that depends on the rank's own loss or data
        - a configuration that only one rank read; a scaler for each rank that sees only its own overflows
        - a checkpoint of the optimizer or the schedule that only one rank loaded

    Next:
        1. Print the optimizer's groups on each rank at the step of the message.
        2. Decide on rank 0 and broadcast the result.
    """

    steps_min: int = threshold(2, "steps in a row with other values, where no digest has shown yet that weights differ")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        rows = rank_rows(window)
        if not rows.is_one_model:
            return ()
        for measure, what in (("rate", "learning rate"), ("scale", "loss scale"), ("setting", "")):
            since = {rank: step for rank in _ranks(rows, measure) if (step := self._since(rows, measure, rank))}
            if not since:
                continue
            ranks, first = list(since), int(min(since.values()))
            apart = min((step for rank in ranks if (step := rows.of("weights-apart", rank))), default=0.0)
            its = "its" if len(ranks) == 1 else "their"
            return (
                Symptom(
                    name="rank-settings",
                    severity="critical" if apart else "warning",
                    first_step=first,
                    last_step=int(window.steps[-1]),
                    message=f"{_difference(rows, ranks, measure, what)} {_when(rows, ranks, measure, first)}"
                    + (f"; {its} weights differ since step {int(apart)}" if apart else ""),
                    signals=("ranks.value",),
                    numbers={
                        "rank": float(ranks[0]),
                        "ranks": float(len(ranks)),
                        "of_loss_scale": float(measure == "scale"),
                    },
                ),
            )
        return ()

    def _since(self, rows: RankRows, measure: str, rank: str) -> float:
        """The first step with another value; 0 if that is not certain, or follows from something else.

        A value that differs in single steps only, as that of a schedule that is one step ahead, counts once the weights
        differ after it: with equal gradients they have to. A loss scale that differs after the gradients did follows
        from them.
        """
        first, weights = rows.first(measure, rank), rows.of("weights-apart", rank)
        gradients = rows.of("gradients-apart", rank)
        if measure == "scale" and 0 < gradients < first:
            return 0.0
        since = rows.of(f"{measure}-apart", rank)
        lasts = since and rows.of_all("compared") - since + 1 >= self.steps_min
        return first if lasts or 0 < first < weights else 0.0


def _ranks(rows: RankRows, measure: str) -> list[str]:
    """The ranks that have, or had in some steps, another value."""
    return sorted({rank for name in ("apart", "first") for rank, _ in rows.ranks(f"{measure}-{name}")}, key=int)


def _when(rows: RankRows, ranks: list[str], measure: str, first: int) -> str:
    steps = max(rows.of(f"{measure}-steps", rank) for rank in ranks)
    goes_on = any(rows.of(f"{measure}-apart", rank) == first for rank in ranks)
    if goes_on or not steps:
        return f"since step {first}"
    return f"in {steps:.0f} steps since step {first}" if steps > 1 else f"at step {first}"


def _difference(rows: RankRows, ranks: list[str], measure: str, what: str) -> str:
    train = "trains" if len(ranks) == 1 else "train"
    if measure == "setting":
        found = rows.names_of("setting-apart", ranks)
        if found == ["step count"]:
            state = f"the optimizer state on {ranks_named(ranks)} counts other steps than on {rows.others(*ranks)}"
            return f"{state}: it was lost, or not loaded,"
        names = ", ".join(found) or "other settings"
        return f"{ranks_named(ranks)} {train} with another {names} than {rows.others(*ranks)}"
    by_value: dict[float, list[str]] = {}
    for rank in ranks:
        by_value.setdefault(rows.of(measure, rank), []).append(rank)
    usual = f"{rows.others(*ranks)} with {rows.of(measure, 'usual'):.4g}"
    head, *others = [f"{ranks_named(some)} {{}}with {{}}{value:.4g}" for value, some in by_value.items()]
    train = "trains" if len(next(iter(by_value.values()))) == 1 else "train"
    parts = [head.format(f"{train} ", f"{what} "), *(one.format("", "") for one in others[: VALUES_MAX - 1]), usual]
    return ", ".join(parts)
