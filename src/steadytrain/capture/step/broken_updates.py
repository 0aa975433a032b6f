"""Updates that break weights themselves: an optimizer without ``eps``, or one of another library.

The weights are checked after the first update, and then as often as costs at most ``SHARE`` of the run. Between looks,
and on an accelerator, a loss that is not finite shows them one step later (``stopping``). Not here: weights that were
broken by a gradient, which the gate keeps from them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path

from steadytrain.capture.snapshots.good_state import last_good_snapshot, nonfinite_parameters
from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.core.model import Symptom

SHARE = 0.005
"""Of the time that the run takes, for these looks."""

NAMES_MAX = 16
FIRST_STATE = "the one that the script began with"


class UpdateLooks:
    """Looks at the weights of one stream after its updates; they were finite before the first."""

    def __init__(self) -> None:
        self._last_step = 0
        self._cost_s = 0.0
        self._ended = time.perf_counter()
        self._is_over = False

    def look(self, stream: Stream) -> list[str]:
        """The parameters that the update of ``stream.step`` broke; none where no look is due. A broken one ends it."""
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
        """The first update after the last look."""
        return self._last_step + 1


def broken_update(stream: Stream, bad: Sequence[str], *, first: int, last: int, good: str) -> Symptom:
    """The symptom of weights that an update from ``first`` to ``last`` broke; ``good`` names the state before it."""
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
    """The newest snapshot of the run at ``folder`` whose numbers are all finite, in words."""
    path = last_good_snapshot(folder)
    if path is None:
        return f"that of a checkpoint from before step {before}"
    return f"snapshots/{path.parent.name} of the recording, which the bundle keeps"


def breaks_at(stream: Stream, step: int) -> bool:
    """Whether the step before ``step`` was well, so that weights that are bad now were broken by its update."""
    window = stream.history.recent()
    rows = [at for at in range(len(window)) if int(window.steps[at]) == step - 1]
    if not rows or bool(window.skipped[rows[-1]]) or bool(window.refused[rows[-1]]):
        return False
    signals = [name for name in ("loss", "gradient_norm") if bool(window.present[name][rows[-1]])]
    return bool(signals) and all(math.isfinite(float(window.signals[name][rows[-1]])) for name in signals)
