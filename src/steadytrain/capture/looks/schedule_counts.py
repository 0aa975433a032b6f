"""Follows how many steps a schedule counts for each update, and where they lead its rate.

The schedulers are those that exist at the first update of a stream. The first of them that counts is followed. Not
here: whether its unit is meant.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.optim.lr_scheduler import CosineAnnealingLR, ExponentialLR, LambdaLR, MultiStepLR, ReduceLROnPlateau

from steadytrain.capture.snapshots.loaded_states import schedulers_of
from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.core.torch_private import INNER_SCHEDULERS

STEADY_UPDATES = 16
"""Updates in which a schedule counts equally many steps, from the first one on."""

RISEN_SHARE = 0.1
"""Share of the way from its lowest to its base rate that a cosine has risen again."""

WARM_SHARE, ONE_CYCLE_SHARE = 0.02, 0.05
"""Share of its full rate below which a warm-up has hardly begun. OneCycleLR begins at 4 %."""

PASSES_SINCE = 3.0
"""Passes over the data after which a schedule that ended within the first one is reported."""

UPDATES_TIMES, UPDATES_SINCE = 5, 200
"""Where the passes are not known: a schedule that each update steps is reported after so many times its last milestone,
and so many updates after it."""

GAMMA_MAX = 0.99
"""Per pass over the data such a factor is usual; a factor for each update has more digits, as 0.9995."""

COUNTED_SHARE = 1 / 16
UPDATES_DUE = 100
RISING_STEPS, RISING_SHARE = 8, 0.125
"""Steps of a schedule, fewer than one in 16 updates, in which its rate has risen each time, and the share of its full
rate that it has reached at most by then: a warm-up of 64 such steps or more."""

FACTOR_RATE_MAX, FACTOR_RATIO_MAX, FACTOR_STEPS = 0.01, 3.0, 4
"""The highest rate of an optimizer that a factor is compared with, the ratio up to which they are the same number, and
the steps of the schedule in which the factor has not risen: a warm-up passes every number."""

SLOW_PASSES = 2.0
"""Passes over the data after which a schedule is known to be stepped once for each."""


def schedulers_at_start(stream: Stream) -> list[weakref.ref[Any]]:
    """The schedulers of ``stream``, searched for only if a group has what every scheduler of torch writes into it."""
    scheduled = [one for one in stream.optimizers if any("initial_lr" in group for group in one.param_groups)]
    return [weakref.ref(each) for one in scheduled for each in schedulers_of(one)]


class ScheduleCounts:
    """Follows one stream from its first update on; a step costs some comparisons."""

    def __init__(self, schedulers: Sequence[weakref.ref[Any]]) -> None:
        self._schedule: weakref.ref[Any] | None = None
        for held in schedulers:
            one = held()
            if not isinstance(one, ReduceLROnPlateau) and isinstance(getattr(one, "last_epoch", None), int):
                self._schedule = held
                break
        self._updates = 0
        self._start = self._last = 0
        self._each: int | None = None
        self._turned_after: float | None = None
        self._cut_after: float | None = None
        self._highest = 0.0
        self._told_slow = False
        self._rising, self._risen_at, self._share_before = True, -1, 0.0
        self._passes_due, self._updates_due = 1.0, UPDATES_DUE
        self._factor_count, self._factor_falls, self._factor_highest = -1, 0, 0.0

    def passed_over(self, updates: int) -> None:
        """So many updates were not looked at."""
        self._updates += updates
        schedule = self._schedule() if self._schedule is not None else None
        self._last = int(schedule.last_epoch) if schedule is not None else self._last

    def rows(self, stream: Stream, passes: float, most: float) -> Iterator[tuple[str, float]]:
        """The rows before an update, given the ``passes`` over the data so far (0 if they are not known).

        ``most`` is what they are at most, if data sets that were made anew are one.

        ``steps-an-update:CLASS`` is how many steps the schedule counts for each of the first 16 updates, if that is 2
        or more and not the number of ranks (Accelerate steps once for each of them). ``cosine-turned:CLASS`` is the
        ``T_max`` of a cosine whose rate rises again, ``turned-after:CLASS`` the passes over the data until it turned.
        ``warm-up-share:CLASS`` is the share of its full rate that the schedule has reached, reported after 1, 2, 4,
        ... passes or 100, 200, ... updates while it is small and the schedule counts few steps:
        ``steps-counted:CLASS``, in ``passes-made:CLASS`` passes. ``last-milestone:CLASS`` is the last milestone of a
        ``MultiStepLR`` that was reached after ``milestones-after:CLASS`` passes, 1 or less, three passes ago; or, if
        the passes are not known, long ago: ``milestones-updates:CLASS`` is the number of updates so far.
        ``steps-of-passes:CLASS`` is how many steps it has counted after two passes, if these are one for each pass.
        ``slow-warm-up:CLASS`` is the share of its full rate that a schedule has reached which is stepped in few
        updates, ``slow-steps:CLASS`` so often by then. ``gamma-an-update:CLASS`` is the factor of an ``ExponentialLR``
        that each of the first 16 updates applied, up to 0.99. ``rate-as-factor:CLASS`` is the highest rate that a
        ``LambdaLR`` reached, ``rate-of-optimizer:CLASS`` the one that it multiplies, if its factor is about that rate.
        """
        schedule = self._schedule() if self._schedule is not None else None
        if schedule is None:
            return
        count, name = int(schedule.last_epoch), type(schedule).__name__
        self._updates += 1
        if self._updates == 1:
            self._start = self._last = count
            return
        counted, self._last = count - self._last, count
        if self._updates <= STEADY_UPDATES + 1:
            self._each = counted if self._each in (None, counted) else 0
            if self._updates == STEADY_UPDATES + 1 and (self._each or 0) > 1 and self._each != _ranks():
                yield f"steps-an-update:{name}", float(self._each or 0)
            gamma = schedule.gamma if type(schedule) is ExponentialLR and self._each else 1.0
            if self._updates == STEADY_UPDATES + 1 and 0.0 < gamma <= GAMMA_MAX:
                yield f"gamma-an-update:{name}", float(gamma)
        if not self._told_slow and (passes >= SLOW_PASSES or (not passes and self._updates > UPDATES_DUE)):
            self._told_slow = True
            most_counted = COUNTED_SHARE * self._updates
            if 1 <= count - self._start <= (min(passes + 1.0, most_counted) if passes else most_counted):
                yield f"steps-of-passes:{name}", float(count - self._start)
        yield from self._multiplies(schedule, name, count)
        yield from self._rises(stream, name, count)
        yield from self._turned(schedule, most)
        yield from self._cut(schedule, passes, most)
        yield from self._warms(stream, name, count - self._start, passes)

    def _multiplies(self, schedule: Any, name: str, count: int) -> Iterator[tuple[str, float]]:
        """A function that returns a rate where a factor is asked for. Known once the factor no longer rises."""
        if type(schedule) is not LambdaLR or self._start > 1 or count == self._factor_count:
            return
        full, rate = float(schedule.base_lrs[0]), float(schedule.get_last_lr()[0])
        if not 0.0 < full <= FACTOR_RATE_MAX or self._factor_highest > FACTOR_RATIO_MAX * full:
            return
        self._factor_count, factor = count, rate / full
        self._factor_falls = 0 if factor > self._factor_highest else self._factor_falls + 1
        self._factor_highest = max(self._factor_highest, factor)
        if self._factor_falls == FACTOR_STEPS and self._factor_highest * FACTOR_RATIO_MAX >= full:
            yield f"rate-as-factor:{name}", self._factor_highest * full
            yield f"rate-of-optimizer:{name}", full

    def _rises(self, stream: Stream, name: str, count: int) -> Iterator[tuple[str, float]]:
        """A warm-up that would take dozens of passes, if the schedule is stepped once for each."""
        if not self._rising or count == self._risen_at or stream.optimizers[0].param_groups[0].get("max_lr"):
            return
        self._risen_at = count
        group = stream.optimizers[0].param_groups[0]
        full, rate = float(group.get("initial_lr", 0.0)), float(group["lr"])
        share, before = rate / full if full > 0.0 else 1.0, self._share_before
        self._rising, self._share_before = before < share <= RISING_SHARE, share
        counted = count - self._start
        if self._rising and counted >= RISING_STEPS and counted <= COUNTED_SHARE * self._updates:
            self._rising = False
            yield f"slow-warm-up:{name}", share
            yield f"slow-steps:{name}", float(counted)

    def _turned(self, schedule: Any, passes: float) -> Iterator[tuple[str, float]]:
        chain = (schedule, *INNER_SCHEDULERS.on(schedule, ()))
        cosine = next((one for one in chain if type(one) is CosineAnnealingLR), None)
        if cosine is None or cosine.last_epoch <= cosine.T_max or self._turned_after == -1.0:
            return
        if self._turned_after is None:
            self._turned_after = passes * _ranks()  # the ranks may share the data
        low, full = float(cosine.eta_min), float(cosine.base_lrs[0])
        if float(cosine.optimizer.param_groups[0]["lr"]) > low + RISEN_SHARE * (full - low):
            yield f"cosine-turned:{type(cosine).__name__}", float(cosine.T_max)
            yield f"turned-after:{type(cosine).__name__}", self._turned_after
            self._turned_after = -1.0

    def _cut(self, schedule: Any, passes: float, most: float) -> Iterator[tuple[str, float]]:
        chain = (schedule, *INNER_SCHEDULERS.on(schedule, ()))
        one = next((one for one in chain if type(one) is MultiStepLR and one.milestones), None)
        if one is None or one.last_epoch < max(one.milestones) or self._cut_after == -1.0:
            return
        if self._cut_after is None:
            self._cut_after = most * _ranks()
        last = max(one.milestones)
        each = self._each and self._start + self._updates - 1 == one.last_epoch  # stepped at each update so far
        if each and not passes and self._updates >= max(UPDATES_TIMES * last, last + UPDATES_SINCE):
            yield f"last-milestone:{type(one).__name__}", float(last)
            yield f"milestones-updates:{type(one).__name__}", float(self._updates - 1)
            self._cut_after = -1.0
        if 0.0 < self._cut_after <= 1.0 and passes >= PASSES_SINCE:
            yield f"last-milestone:{type(one).__name__}", float(last)
            yield f"milestones-after:{type(one).__name__}", self._cut_after
            self._cut_after = -1.0

    def _warms(self, stream: Stream, name: str, counted: int, passes: float) -> Iterator[tuple[str, float]]:
        if self._highest > ONE_CYCLE_SHARE:
            return
        self._highest = max((_share(group) for one in stream.optimizers for group in one.param_groups), default=1.0)
        due = passes >= self._passes_due or self._updates > self._updates_due
        if not due or self._highest > ONE_CYCLE_SHARE:
            return
        while passes >= self._passes_due:
            self._passes_due *= 2.0
        while self._updates > self._updates_due:
            self._updates_due *= 2
        if 1 <= counted <= COUNTED_SHARE * self._updates:
            yield f"warm-up-share:{name}", self._highest
            yield f"steps-counted:{name}", float(counted)
            yield f"passes-made:{name}", passes


def _share(group: dict[str, Any]) -> float:
    """The share of its full rate that a group has; 1 where the rate is not small, or not known."""
    full, rate = float(group.get("max_lr", group.get("initial_lr", 0.0))), group.get("lr")
    share = float(rate) / full if rate is not None and full > 0.0 else 1.0
    return share if share <= (ONE_CYCLE_SHARE if "max_lr" in group else WARM_SHARE) else 1.0


def _ranks() -> int:
    distributed = torch.distributed
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1
