"""The contract of what decides about a live run: whether an update is made, and what is changed between two steps.

The base class answers to non-finite values as the policies ``observe``, ``stop`` and ``skip`` say, and changes nothing
else. ``guard`` has the one that intervenes. Only the training thread calls it. Not here: how an update is skipped
(``skipping``), or a run stopped (``stopping``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from torch import nn

from steadytrain.core.model import Symptom

if TYPE_CHECKING:
    from steadytrain.capture.step.gate import LeftOut, Measurement
    from steadytrain.capture.step.live_run import LiveRun
    from steadytrain.capture.step.optimizer_streams import Stream

Answer = Literal["observe", "stop", "skip"]


class Steering:
    """Changes nothing, and answers to non-finite values as the policy says."""

    def joins(self, run: LiveRun) -> None:
        """The run begins. Called once, before its first step."""
        self._policy = run.settings.policy

    def call_begins(self, root: nn.Module) -> None:
        """The script calls a root module with gradients enabled."""

    def first_calls(self, root: nn.Module) -> None:
        """The same, before anything of the call is recorded: a state may be loaded before the first one."""

    def gate_begins(self, stream: Stream) -> None:
        """Loss and gradients are about to be measured: hyper-parameters may be set for this update."""

    def nonfinite(self, stream: Stream, measured: Measurement, why_not: str | None) -> Answer:
        """Loss or gradients of the step at the gate are not finite. ``why_not``: why its update cannot be skipped."""
        if self._policy == "skip":
            return "skip" if why_not is None else "stop"
        return "observe" if self._policy == "observe" else "stop"

    def finite(self, stream: Stream, measured: Measurement) -> LeftOut | None:
        """They are finite: gradients may be changed. Returns why the update is to be skipped, None to make it."""
        return None

    @property
    def gradient_factor(self) -> float:
        """What the gradients of the step at the gate were multiplied by."""
        return 1.0

    def found(self, stream: Stream, symptoms: Sequence[Symptom]) -> tuple[Sequence[Symptom], Sequence[Symptom]]:
        """Detectors have looked at the step. Returns the symptoms to tell, and those that may become incidents."""
        return symptoms, symptoms

    def updated(self, stream: Stream) -> None:
        """All optimizers of ``stream`` have stepped, or its update was skipped: the run is between two steps."""

    def stream_done(self, stream: Stream) -> None:
        """The script has dropped the optimizers of ``stream``."""

    def close(self) -> None:
        """The run is over: take back what still holds."""

    def forget(self) -> None:
        """Called in a forked child, which owns none of this."""
