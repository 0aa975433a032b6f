"""Begins, times and ends a loop rerun: one more lap of the script's own loop after a refused update.

Not here: what is observed during the lap (``context.LoopRerun``), and the decision to run it (``stopping``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from steadytrain.capture.hooks.fail_open import Guard, Tell
from steadytrain.capture.incident.context import LoopRerun
from steadytrain.capture.step.input_recorder import BufferKeeper, Schedule
from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.capture.step.run_stopped import STOPPED_STATUS, RunStopped
from steadytrain.core.incident import Finding

LOOP_RERUN_S_MAX = 120.0


class LoopRerunTooLong(SystemExit):
    """Raised in the training thread when the lap takes too long. The update was already refused."""

    def __init__(self) -> None:
        super().__init__(STOPPED_STATUS)


class Lap:
    """``rerun`` is set while the script runs its loop once more, else None."""

    def __init__(self, guard: Guard, tell: Tell, buffers: BufferKeeper) -> None:
        self.rerun: LoopRerun | None = None
        self._guard = guard
        self._tell = tell
        self._buffers = buffers
        self._finish: Callable[[Finding], RunStopped] | None = None
        self._deadline: threading.Timer | None = None
        self._schedule: Schedule | None = None

    def begin(self, rerun: LoopRerun, stream: Stream, finish: Callable[[Finding], RunStopped]) -> None:
        """Let the script run its loop once more. Without gradients the optimizer changes no weights and no state."""
        for parameter in stream.parameters:
            parameter.grad = None
        self.rerun, self._finish = rerun, finish
        with self._guard.part("keeping the schedule"):
            self._schedule = Schedule.take(stream.optimizers)
        self._tell("the update was refused; running the step once more with the same batch to find the operation")
        self._deadline = threading.Timer(LOOP_RERUN_S_MAX, _interrupt, (threading.get_ident(),))
        self._deadline.daemon = True
        self._deadline.start()

    def end(self, ask: Callable[[LoopRerun], Finding]) -> RunStopped:
        """End the lap: get its finding from ``ask``, restore everything, and return what ends the script."""
        assert self._finish is not None
        assert self.rerun is not None
        if self._deadline is not None:
            self._deadline.cancel()
        rerun, self.rerun, finish = self.rerun, None, self._finish
        finding = Finding(None, "steadytrain failed while it re-ran the loop; see the warning above")
        with self._guard.part("one more lap"):
            finding = ask(rerun)
        with self._guard.part("one more lap"):
            rerun.end()
        with self._guard.part("restoring buffers"):
            self._buffers.restore()
        with self._guard.part("restoring the schedule"):
            if self._schedule is not None:
                self._schedule.restore()
        ending = RunStopped("steadytrain refused the update")
        with self._guard.part("handling the incident"):
            ending = finish(finding)
        return ending  # noqa: RET504 (a guarded part may end without it)

    def abandon(self, why: str) -> RunStopped:
        """End a lap during which the script ended, failed or was interrupted. Returns what ends the script."""
        if self._deadline is not None and self._deadline.finished.is_set():
            why = f"the script did not reach the optimizer again within {LOOP_RERUN_S_MAX:g} s"
        return self.end(lambda rerun: rerun.abandon(why))


def _interrupt(thread: int) -> None:
    """Raise :class:`LoopRerunTooLong` in the training thread, to end a lap that does not reach the optimizer."""
    import ctypes

    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(LoopRerunTooLong))
