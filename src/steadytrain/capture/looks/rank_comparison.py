"""Compares the records of several ranks, and says in which they differ: rows of the table ``ranks``.

The first rank reads what the others wrote into their folders, so no collective is needed and no rank waits. A rank is
compared with what most ranks have, and with the first rank where there is no majority. Not here: whether a difference
is a fault (``detectors``).

A row is ``MEASURE:RANK`` or ``MEASURE:RANK NAME``:

- ``ranks:all``: the number of ranks that are compared
- ``compared:all``: the newest step that all ranks have recorded
- ``gradients-apart:RANK``: the first step of those, up to the newest, in which its gradient norms differ; else 0
- ``gradients-apart:RANK NAME``: the same of one tensor, where not all tensors differ
- ``gradients-unlike:all``: since which step no two of more than two ranks have equal norms of some tensor; else 0
- ``gradients-together:all``: the number of steps so far in which the gradient norms of all ranks were equal
- ``weights-apart:RANK``: the first step, up to the newest digest, before whose update its parameters differ; else 0
- ``weights-apart:RANK NAME``: the same of one parameter, where not all differ
- ``weights-unlike:all``: the same of digests of a parameter
- ``weights-count:RANK``: how many of its parameters differ, where the model is split over a mesh; then the first
  parameters have a row each. ``beside:RANK``: the rank that it is compared with; -1 if there are several; none if all
- ``buffers-apart:RANK NAME``: since which digest a buffer differs that the ranks had in common
- ``weights-together:all``: the newest step before whose update the parameters of all ranks were equal; else 0
- ``state-apart:RANK``: the first step before whose update its optimizer state differs
- ``setting-apart:RANK NAME``, ``rate-apart:RANK``, ``scale-apart:RANK``: the first step up to the newest in which a
  setting of its optimizer, its learning rate or its loss scale differ; else 0. ``rate:RANK``, ``scale:RANK``,
  ``rate:usual``, ``scale:usual``: the newest values that differed
- ``rate-first:RANK``, ``scale-first:RANK``, ``rate-steps:RANK``, ``scale-steps:RANK``: the first step in which they
  differed, and the number of such steps, also where they are equal by now. Forgotten once the weights of all ranks are
  equal after it
- ``averaged:all``: the newest step before which the smallest parameter became equal again on all ranks; else 0
- ``same-inputs:all``: digests in a row in which all ranks had the same inputs, while the inputs changed
- ``same-losses:all``: steps in a row in which all ranks had the same loss to the last bit, while it changed, and their
  inputs were not known to differ
- ``same-inputs:RANK EARLIER``, ``same-losses:RANK EARLIER``: the same of two ranks
- ``loss-ratio:RANK``: the median over the last steps of its loss by the median of the other ranks, where it exceeds
  ``RATIO_MIN`` in each of them; ``loss-ratio-since:RANK``: since which step it does

A row that would be 0 is left out.
- ``ended-after:RANK``: the steps after which it ended while others, which then lost contact, were in step
  ``went-on:RANK``; written at the end, by the first rank that lost contact
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steadytrain.capture.looks.rank_records import RankRecords, Readings, Value
from steadytrain.capture.looks.rank_since import ALL, Since, usual_of
from steadytrain.capture.looks.rank_twins import RankTwins
from steadytrain.capture.looks.replica_comparison import ReplicaComparison
from steadytrain.capture.looks.replica_digests import BUFFER, COLUMNS, INPUTS, PROBE, SETTING, STATE

SAME = 1e-5
"""Relative difference of norms that another order of summation explains."""

RATIO_STEPS = 16
RATIO_MIN = 4.0
"""A ratio of losses is reported if it exceeds this in each of the last ``RATIO_STEPS`` steps."""

ROWS_MAX = 256
"""Rows of one comparison: what all ranks have in common first, then each rank, then names of tensors."""


class _Brief:
    """In how many steps a setting of a rank differed, and first in which."""

    def __init__(self) -> None:
        self.first: dict[int, int] = {}
        self.steps: Counter[int] = Counter()

    def see(self, step: int, apart: Iterable[int]) -> None:
        for rank in apart:
            self.first.setdefault(rank, step)
            self.steps[rank] += 1

    def forget(self, step: int) -> None:
        """What began before ``step``: it did no harm."""
        for rank in [rank for rank, first in self.first.items() if first < step]:
            del self.first[rank], self.steps[rank]

    def rows(self, measure: str) -> dict[str, float]:
        rows = {f"{measure}-first:{rank}": float(first) for rank, first in self.first.items()}
        return rows | {f"{measure}-steps:{rank}": float(count) for rank, count in self.steps.items()}


class RankComparison:
    """Serves one stream of one run. ``ranks`` are the records by rank, with the first rank's own."""

    def __init__(self, ranks: Mapping[int, RankRecords]) -> None:
        self._ranks = ranks
        self._newest_of = dict.fromkeys(("steps", "gradients", "digests", "probes"), 0)
        self._together = self._averaged_at = 0
        self._probes_apart = False
        self._gradients, self._replicas = Since(), ReplicaComparison()
        self._of_settings = {measure: Since() for measure in ("rate", "scale", "setting")}
        self._brief = {measure: _Brief() for measure in ("rate", "scale")}
        self._state: dict[int, int] = {}
        self._same_inputs, self._same_losses = RankTwins(), RankTwins()
        self._inputs_differ = False
        self._newest: dict[str, float] = {}
        self._ratios: dict[int, list[float]] = {rank: [] for rank in ranks}
        self._ratio_since = Since()

    def rows(self) -> dict[str, float]:
        """Compare the steps that all ranks have by now; empty if there are no new ones."""
        before = dict(self._newest_of)
        compare = {
            "steps": self._compare_steps,
            "digests": self._compare_digests,
            "gradients": self._compare_gradients,
            "probes": self._compare_probes,
        }
        for kind, compare_at in compare.items():
            for step in self._common(kind):
                compare_at(step)
                self._newest_of[kind] = step
        return self._found() if self._newest_of != before else {}

    def _common(self, kind: str) -> list[int]:
        """The steps of all ranks that are not yet compared, oldest first."""
        all_have = set.intersection(*(set(getattr(one, kind)) for one in self._ranks.values()))
        return sorted(step for step in all_have if step > self._newest_of[kind])

    def _compare_steps(self, step: int) -> None:
        by_rank = {rank: one.steps[step] for rank, one in self._ranks.items()}
        for signal, measure in (("learning_rate", "rate"), ("loss_scale", "scale")):
            values = {rank: one[signal] for rank, one in by_rank.items() if signal in one}
            if len(values) == len(by_rank):
                usual = usual_of(values)
                apart = [rank for rank, value in values.items() if value != usual]
                self._of_settings[measure].see(step, [(rank, "") for rank in apart])
                self._brief[measure].see(step, apart)
                self._newest |= {f"{measure}:{rank}": values[rank] for rank in apart}
                self._newest |= {f"{measure}:usual": usual} if apart else {}
        losses = {rank: one["loss"] for rank, one in by_rank.items() if np.isfinite(one.get("loss", np.nan))}
        if len(losses) == len(by_rank):
            self._compare_losses(step, losses)

    def _compare_losses(self, step: int, losses: Mapping[int, float]) -> None:
        self._same_losses.see({} if self._inputs_differ else losses)
        for rank, loss in losses.items():
            others = float(np.median([other for one, other in losses.items() if one != rank]))
            ratio = abs(loss) / abs(others) if others else float("nan")
            self._ratios[rank] = [*self._ratios[rank], ratio][-RATIO_STEPS:]
        self._ratio_since.see(step, [(rank, "") for rank, ratios in self._ratios.items() if ratios[-1] >= RATIO_MIN])

    def _compare_gradients(self, step: int) -> None:
        if self._replicas.is_split:
            return
        measured, apart = _apart({rank: one.gradients[step] for rank, one in self._ranks.items()}, self._replicas)
        self._gradients.see(step, apart)
        self._together += bool(measured and not apart)

    def _compare_digests(self, step: int) -> None:
        by_rank = {rank: one.digests[step] for rank, one in self._ranks.items()}
        rows = {row for one in by_rank.values() for row in one.rows}
        special = {row for row in rows if row.startswith("=") and not row.startswith(BUFFER)}
        settings, states, inputs = [], {}, {}
        for row in special:
            values = {rank: one.value(row) for rank, one in by_rank.items()}
            if row == STATE:
                states = values
            elif row == INPUTS:
                inputs = values
            else:
                name = row.removeprefix(SETTING)
                settings += [(rank, one) for rank in _different(values) for one in ("", name)]
        self._of_settings["setting"].see(step, settings)
        for rank in _different(states):
            self._state.setdefault(rank, step)
        given = {rank: value for rank, value in inputs.items() if value is not None}
        self._same_inputs.see(given if len(given) == len(by_rank) else {})
        self._inputs_differ = len(given) == len(by_rank) == len(set(given.values()))
        if self._replicas.see(step, {rank: one.without(special) for rank, one in by_rank.items()}):
            for brief in self._brief.values():
                brief.forget(step)

    def _compare_probes(self, step: int) -> None:
        apart = bool(_different({rank: one.probes[step].value(PROBE) for rank, one in self._ranks.items()}))
        if self._probes_apart and not apart:
            self._averaged_at = step
        self._probes_apart = apart

    def _found(self) -> dict[str, float]:
        rows = {
            "compared:all": float(self._newest_of["steps"]),
            "ranks:all": float(len(self._ranks)),
            "gradients-together:all": float(self._together),
            "gradients-unlike:all": self._gradients.unlike,
            "weights-together:all": float(self._replicas.equal_at),
            "weights-unlike:all": self._replicas.weights.unlike,
            "averaged:all": float(self._averaged_at),
            "same-inputs:all": float(self._same_inputs.of_all),
            "same-losses:all": float(self._same_losses.of_all),
        }
        of_ranks: dict[str, float] = {}
        for measure, since in self._of_settings.items():
            of_ranks |= since.rows(f"{measure}-apart", self._ranks)
        for measure, brief in self._brief.items():
            of_ranks |= brief.rows(measure)
        of_ranks |= self._gradients.rows("gradients-apart", self._ranks)
        of_ranks |= self._replicas.rows(self._ranks)
        of_ranks |= {f"state-apart:{rank}": float(step) for rank, step in self._state.items()}
        of_ranks |= self._newest
        for rank, ratios in self._ratios.items():
            if len(ratios) == RATIO_STEPS and min(ratios) >= RATIO_MIN:
                of_ranks[f"loss-ratio:{rank}"] = float(np.median(ratios))
        of_ranks |= self._ratio_since.rows("loss-ratio-since", self._ranks)
        of_ranks |= self._same_inputs.rows("same-inputs") | self._same_losses.rows("same-losses")
        named = sorted(of_ranks, key=lambda row: " " in row)
        return {row: value for row, value in rows.items() if value} | {
            row: of_ranks[row] for row in named[: ROWS_MAX - len(rows)]
        }


def _apart(by_rank: Mapping[int, Readings], replicas: ReplicaComparison) -> tuple[bool, list[tuple[int, str]]]:
    """Whether there are tensors that all ranks have, and ``(rank, name)`` of those that differ, with ``(rank, "")``;
    with ``(ALL, "")`` if no two ranks have the same of some tensor. Ranks are compared with those of their group."""
    first = next(iter(by_rank.values()))
    if all(one.rows == first.rows and _close(one.values, first.values).all() for one in by_rank.values()):
        return bool(first.rows), []
    common = [name for name in first.rows if all(name in one.rows for one in by_rank.values())]
    apart: dict[int, list[str]] = {}
    unlike = measured = False
    for name in common:
        for values in replicas.of_group(name, {rank: one.value(name) for rank, one in by_rank.items()}):
            measured = True
            for rank in _different(values):
                apart.setdefault(rank, []).append(name)
            unlike = unlike or (len(values) == len(by_rank) > 2 and _no_two_equal(values))
    every = [(ALL, "")] if unlike else []
    return measured, [*every, *((rank, name) for rank, names in apart.items() for name in ("", *names))]


def _no_two_equal(values: Mapping[int, Value | None]) -> bool:
    known = sorted(value for value in values.values() if value is not None)
    near = (_close(np.array(one), np.array(other)).all() for one, other in pairwise(known))
    return len(known) == len(values) and not any(near)


def _different(values: Mapping[int, Value | None]) -> list[int]:
    """The ranks that do not have what most have; unless one has nothing: then nobody knows."""
    if any(value is None for value in values.values()):
        return []
    usual = usual_of(values)
    return [rank for rank, value in values.items() if not _close(np.array(value), np.array(usual)).all()]


def _close(values: NDArray[Any], usual: NDArray[Any]) -> NDArray[np.bool_]:
    """Equal digests, or norms that another order of summation explains. What is not finite is reported by others."""
    if values.shape[-1:] == (len(COLUMNS),):
        return np.asarray((values == usual) | np.isnan(values) | np.isnan(usual))
    finite = np.isfinite(values) & np.isfinite(usual)
    with np.errstate(invalid="ignore"):
        near = np.abs(values - usual) <= SAME * np.maximum(np.abs(values), np.abs(usual))
    return np.asarray(near | ~finite)
