"""Detects updates that make weights NaN or Inf by their own arithmetic: an optimizer without ``eps``, or a foreign one.

The weights are checked after the first update, and then as often as ``SHARE`` of the run's time allows. Between checks,
and on an accelerator, a non-finite loss shows the damage one step later (``stopping``). Not here: non-finite gradients,
which the gate keeps away from the weights.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from steadytrain.capture.snapshots.good_state import last_good_snapshot, nonfinite_parameters
from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.core.model import Symptom

SHARE = 0.005
"""The largest share of the run's time that these checks may take."""

NAMES_MAX = 16
FIRST_STATE = "the one that the script began with"


class UpdateLooks:
    """Checks the weights of one stream after its updates. They were finite before the first update."""

    def __init__(self) -> None:
        self._last_step = 0
        self._cost_s = 0.0
        self._ended = time.perf_counter()
        self._is_over = False

    def look(self, stream: Stream) -> list[str]:
        """The parameters that became non-finite; none if no check is due. A broken parameter ends all checks."""
        if self._is_over or stream.device.type != "cpu":
            return []
        began = time.perf_counter()
        if SHARE * (began - self._ended) < self._cost_s:
            return []
        bad = nonfinite_parameters(stream)
        self._ended = time.perf_counter()
        self._cost_s = self._ended - began
        self._is_over = bool(bad)
        if not bad:
            self._last_step = stream.step
        return bad

    @property
    def first_step(self) -> int:
        """The first update after the last check."""
        return self._last_step + 1


def broken_update(stream: Stream, bad: Sequence[str], *, first: int, last: int, good: str) -> Symptom:
    """The symptom of weights that an update of steps ``first`` to ``last`` broke; ``good`` is the last good state."""
    eps = next((group["eps"] for one in stream.optimizers for group in one.param_groups if "eps" in group), None)
    how = f"{type(stream.optimizers[0]).__name__}{f', eps={eps:g}' if eps == 0 else ''}"
    more = f" and {len(bad) - 1} more parameters" if len(bad) > 1 else ""
    when = f"in the update of step {last} itself" if first == last else f"in an update of the steps {first} to {last}"
    return Symptom(
        name="nonfinite-weight",
        severity="critical",
        first_step=first,
        last_step=last,
        message=f"{bad[0]}{more} became NaN or Inf {when} ({how}): loss, gradients and weights were finite before it, "
        f"so the last good state is {good}",
        signals=("tensors.weight_nonfinite",),
        tensors=tuple(bad[:NAMES_MAX]),
        stream=stream.name,
    )


def good_state(folder: Path, *, before: int) -> str:
    """Describe the newest snapshot in the run folder ``folder`` whose numbers are all finite."""
    path = last_good_snapshot(folder)
    if path is None:
        return f"that of a checkpoint from before step {before}"
    return f"snapshots/{path.parent.name} of the recording, which the bundle keeps"


def stayed_finite(stream: Stream, first: int) -> bool:
    """Whether loss and gradients were finite in all recorded steps from ``first`` on. If not, a gradient that was let
    through may have broken the weights, and not the update's own arithmetic."""
    window = stream.history.recent()
    since = window.steps >= first
    signals = [name for name in ("loss", "gradient_norm") if name in window.signals]
    return not any((window.present[name] & ~np.isfinite(window.signals[name]) & since).any() for name in signals)


def breaks_at(stream: Stream, step: int) -> bool:
    """Whether the step before ``step`` had finite signals and made an update: then that update broke the weights."""
    window = stream.history.recent()
    rows = [at for at in range(len(window)) if int(window.steps[at]) == step - 1]
    if not rows or bool(window.skipped[rows[-1]]) or bool(window.refused[rows[-1]]):
        return False
    signals = [name for name in ("loss", "gradient_norm") if bool(window.present[name][rows[-1]])]
    return bool(signals) and all(math.isfinite(float(window.signals[name][rows[-1]])) for name in signals)
