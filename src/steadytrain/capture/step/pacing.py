"""Bounds the share of a long run's time that recording very short steps takes: decides when the run rests.

Recording a step costs some milliseconds of fixed work, which is much for a step of half a millisecond. So a long run of
such steps is recorded in bursts, and rests between them. :class:`Pacing` adds up the processor time that steadytrain's
entry points take, so that other work on the machine makes no run rest, and compares it with the time of the run. Not
here: what happens in a resting step (``resting``).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

SHARE_TOLD = 0.1
"""The bound on steadytrain's share of the time. :attr:`Pace.share` is lower: calling the hooks is not in its seconds,
and neither are the threads that write."""

REST_CALLS_S, TINY_CALLS_S = 30e-6, 15e-6
"""Seconds of steadytrain in a resting step, and in a tiny one, measured on a CPU: timing them would cost as much
again."""

TINY_S = 0.6e-3
"""In a resting step shorter than this, model calls are not held and no gradient is read."""

COSTLY_SHARE = 0.5
"""Steps of 5,000 tensors take 40 ms, and recording one 100 ms: the names and norms of each are read in Python."""

RESTS_COMPARED = 4
"""Rests whose shortest mean step is taken for the script's own: an evaluation in a rest makes it longer."""

ALIGNED = 16
"""A burst begins after a multiple of so many steps: the detectors look at the steps up to such a multiple."""


@dataclass(frozen=True)
class Pace:
    """When a run rests.

    Args:
        share: steadytrain's share of the time after the allowance.
        allowance_s: seconds of steadytrain's work before that: short runs are recorded whole.
        first_steps: steps that are always recorded.
        costly_first_steps: the same of costly steps, of which 1,024 would take minutes.
        burst_steps: steps that are recorded between two rests: 64, and those in which the detectors look at them.
        rest_s_max: the longest rest, in seconds.
        step_s_max: a run whose own step takes longer rests only if recording a step costs half of that or more.
        costly_step_s_max: a run whose own step takes longer than this never rests.
        costly_rest_s_max: the longest rest of a run of such costly steps, in seconds.
        clock: returns seconds.
        own_clock: returns the seconds by which steadytrain's own work is counted; by default the processor time of the
            thread, so that other work on the machine does not make a run rest. It is ``clock`` where another is given.
    """

    share: float = 0.07
    allowance_s: float = 3.0
    first_steps: int = 1024
    costly_first_steps: int = 128
    burst_steps: int = 64 + ALIGNED - 1
    rest_s_max: float = 20.0
    step_s_max: float = 0.010
    costly_step_s_max: float = 0.5
    costly_rest_s_max: float = 180.0
    clock: Callable[[], float] = time.perf_counter
    own_clock: Callable[[], float] | None = None


class Pacing:
    """The account of one run, which begins with its first recorded step."""

    def __init__(self, pace: Pace) -> None:
        self.pace = pace
        self.clock = pace.clock
        self.own_clock = pace.own_clock or (time.thread_time if pace.clock is time.perf_counter else pace.clock)
        self.rests = False
        """Whether the step in progress is not recorded."""

        self.step_s = 0.0
        """The script's own part of a step: as it was in the last rests, before them as it was in recorded steps."""

        self.updates = 1.0
        """The optimizer steps that one step stands for: more than one where several optimizers take turns."""

        self.recording_s = 0.0
        """What recording a step took, in the newest block of recorded steps."""

        self._own_s = 0.0
        self._recorded = 0
        self._began: float | None = None
        self._block = (0, 0.0, 0.0)
        self._rest = (0.0, 0.0)
        self._resting_s: deque[float] = deque(maxlen=RESTS_COMPARED)

    def timed(self, entry: Callable[..., Any], resting: Callable[..., Any]) -> Callable[..., Any]:
        """``entry``, an entry point, on the account; while the run rests ``resting`` is called instead."""
        clock = self.own_clock

        def call(*args: Any, **kwargs: Any) -> Any:
            began = clock()
            try:
                return resting(*args, **kwargs) if self.rests else entry(*args, **kwargs)
            finally:
                self._own_s += clock() - began

        return call

    def leave_out(self, seconds: float) -> None:
        """``seconds`` of an entry point were not steadytrain's: it waited for a device."""
        self._own_s -= seconds

    @property
    def tiny(self) -> bool:
        """Whether the run's own steps are so short that a resting one gets no look beyond its loss."""
        return self.step_s < TINY_S

    @property
    def _rest_calls_s(self) -> float:
        return TINY_CALLS_S if self.tiny else REST_CALLS_S

    def recorded(self, step: int) -> int:
        """The recorded ``step`` has ended. Returns how many steps the run should rest now, 0 for none."""
        now = self.clock()
        if self._began is None:
            self._began, self._own_s = now, 0.0
            self._block = (0, now, 0.0)
            return 0
        self._recorded += 1
        pace, (first, began, own_s) = self.pace, self._block
        steps = self._recorded - first
        if steps < pace.burst_steps or step % ALIGNED != ALIGNED - 1:
            return 0
        of_block = self._own_s - own_s
        self.step_s = min(self._resting_s, default=max(now - began - of_block, 1e-9) / steps)
        # Recording also slows the script's own part down, by cold caches and by the threads that write. What an
        # evaluation took in between is not told apart, so at most as much again counts.
        slower_s = min(max(0.0, now - began - of_block - steps * self.step_s), of_block)
        self._own_s += slower_s
        self.recording_s = (of_block + slower_s) / steps
        self._block = (self._recorded, now, self._own_s)
        allowed_s = pace.allowance_s + pace.share * (now - self._began)
        if self._own_s <= allowed_s or not self._may_rest or self._recorded < self._first_steps:
            return 0
        return self._rest_steps(self._own_s - allowed_s)

    def counted(self) -> None:
        """A recorded step of a run that may not rest has ended: its cost is on the account, and nothing follows."""
        if self._began is None:
            self._began, self._own_s = self.clock(), 0.0
            self._block = (0, self._began, 0.0)
        else:
            self._recorded += 1

    @property
    def _is_costly(self) -> bool:
        """Whether a longer step, usually of thousands of tensors, is recorded at half of its own time or more."""
        return self.step_s >= self.updates * self.pace.step_s_max and self.recording_s >= COSTLY_SHARE * self.step_s

    @property
    def _may_rest(self) -> bool:
        of_one_s = self.step_s / self.updates
        return of_one_s < self.pace.step_s_max or (of_one_s < self.pace.costly_step_s_max and self._is_costly)

    @property
    def _first_steps(self) -> int:
        return min(self.pace.first_steps, self.pace.costly_first_steps if self._is_costly else self.pace.first_steps)

    @property
    def _rest_s_max(self) -> float:
        return self.pace.costly_rest_s_max if self._is_costly else self.pace.rest_s_max

    @property
    def cost(self) -> dict[str, float] | None:
        """The seconds of steadytrain's work on the training thread, those of the run, and the recorded steps."""
        if self._began is None or not self._recorded:
            return None
        passed_s = self.clock() - self._began
        return {"own_s": round(self._own_s, 3), "run_s": round(passed_s, 3), "recorded_steps": self._recorded}

    def _rest_steps(self, debt_s: float) -> int:
        """The steps after which the debt and the cost of the next burst are paid off, at most the longest rest."""
        pace, calls_s = self.pace, self._rest_calls_s
        burst_s = pace.burst_steps * (self.recording_s - pace.share * (self.recording_s + self.step_s))
        at_most = self._rest_s_max / self.step_s
        gained_s = pace.share * (self.step_s + calls_s) - calls_s
        wanted = (debt_s + burst_s) / gained_s if gained_s > 0.0 else at_most
        return max(1, int(min(wanted, at_most)))

    def rest(self) -> None:
        """The run rests from now on."""
        self._rest = (self.clock(), self._own_s)
        self.rests = True

    @property
    def rests_long(self) -> bool:
        """Whether the rest has lasted as long as a rest may."""
        return self.clock() - self._rest[0] > self._rest_s_max

    def wake(self, passed: int) -> None:
        """The rest is over after ``passed`` steps: at least a burst is recorded now."""
        now, calls_s = self.clock(), self._rest_calls_s
        self._own_s = self._rest[1] + passed * calls_s
        if passed >= self.pace.burst_steps:
            self._resting_s.append(max((now - self._rest[0]) / passed - calls_s, 1e-9))
            self.step_s = min(self._resting_s)
        self.rests = False
        self._block = (self._recorded, now, self._own_s)


def aligned(step: int, rest: int) -> int:
    """``rest`` steps after ``step``, lengthened so that a burst begins after a multiple of :data:`ALIGNED`."""
    return rest + -(step + rest) % ALIGNED
