"""A gradient holds NaN or Inf."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray

from steadytrain.core.model import IntArray, Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import Aim, Detector
from steadytrain.statistics.rolling_baseline import known_first_step, stride_of
from steadytrain.statistics.table_episodes import stretches


@final
@dataclass(frozen=True)
class NonfiniteGradient(Detector):
    """The gradient of a step holds NaN or Inf.

    Means:
        The backward pass produced NaN or Inf. An optimizer that applies it destroys the weights, and Adam keeps the NaN
        in its moments even if the update is multiplied by zero. Steps that a gradient scaler skipped do not count: that
        is how it finds its scale.

    Causes:
        - the loss is already NaN or Inf (see nonfinite-loss): then every tensor is named; start at the loss
        - a backward formula that is infinite where the forward is not: sqrt, norm or log at zero, a power below one
        - 0 * NaN behind a `where` or a mask: the branch that is not taken still sends NaN back
        - float16 overflow in backward without a scaler, or clipping before `scaler.unscale_`
        - clipping by a norm that is itself Inf turns finite gradients into NaN

    Next:
        1. Count the tensors. If all are affected, look at the loss; if a few, the fault is at or above the deepest one.
        2. Open the incident: it names the first operation of backward that made the value, and its line of forward.
        3. Move the epsilon inside the sqrt or norm, or mask the input of the operation, not its result.
        4. If only the global norm is Inf and no tensor is, the sum of squares overflowed: compute it in float32.
    """

    needs: ClassVar[tuple[str, ...]] = ("gradient_norms", "gradient_norm")
    nonfinite_rank: ClassVar[int | None] = 5
    aim: ClassVar[Aim] = "finite"
    keeps_incident: ClassVar[bool] = False
    spoils_weights: ClassVar[bool] = True

    tensors_max: int = threshold(
        16, "tensor names listed in the symptom; the count of all is among its numbers. Fits a screen"
    )
    hole_steps_max: int = threshold(
        16,
        "finite steps that an episode may contain: one interval between two analyses, so that an "
        "intermittent fault is one symptom",
    )

    def check(self, window: Window) -> tuple[Symptom, ...]:
        bad = _bad_steps(window)
        if not bad.any():
            return ()
        counted = ~window.skipped
        steps, rows = window.steps[counted], bad[counted]
        return tuple(
            self._symptom(window, steps, rows, start, stop - 1)
            for start, stop in stretches(rows, hole_max=self.hole_steps_max)
        )

    def _symptom(self, window: Window, steps: IntArray, rows: NDArray[np.bool_], first: int, last: int) -> Symptom:
        stride = stride_of(window.steps)
        first_step = known_first_step(steps, first, first_seen=int(window.steps[0]), stride=stride, last_row=last)
        named: list[str] = []
        nan = 0
        if window.tensor_names:
            norms = window.gradient_norms[np.searchsorted(window.steps, first_step)]
            named = [window.tensor_names[position] for position in np.flatnonzero(~np.isfinite(norms))]
            nan = int(np.isnan(norms).sum())
        return Symptom(
            name="nonfinite-gradient",
            severity="critical",
            first_step=first_step,
            last_step=int(steps[last]),
            message=_message(named, nan, len(window.tensor_names), first_step, int(steps[last])),
            signals=("gradient_norms",) if named else ("gradient_norm",),
            tensors=tuple(named[: self.tensors_max]),
            numbers={
                "steps": float(rows[first : last + 1].sum()),
                "tensors": float(len(named)),
                "nan_tensors": float(nan),
                "inf_tensors": float(len(named) - nan),
            },
        )


def _bad_steps(window: Window) -> NDArray[np.bool_]:
    """Whether each step was not skipped and has a norm, of a tensor or of all, that is not finite."""
    bad = np.zeros(len(window), np.bool_)
    # One pass on the quiet path; in float64, where finite norms of float32 cannot overflow.
    if window.tensor_names and not np.isfinite(window.gradient_norms.sum(dtype=np.float64)):
        bad |= ~np.isfinite(window.gradient_norms).all(axis=1)
    if "gradient_norm" in window.signals:
        bad |= window.present["gradient_norm"] & ~np.isfinite(window.signals["gradient_norm"])
    return bad & ~window.skipped


def _message(named: list[str], nan: int, tensors: int, first_step: int, last_step: int) -> str:
    when = f"at step {first_step}" if first_step == last_step else f"from step {first_step} to {last_step}"
    if not named:
        beside = ", though that of every tensor is finite" if tensors else ""
        return f"the global gradient norm is not finite {when}{beside}"
    kind = "NaN" if nan == len(named) else "Inf" if nan == 0 else "NaN or Inf"
    which = named[0] if len(named) == 1 else f"{len(named)} of {tensors} tensors ({named[0]} first)"
    return f"the gradient of {which} holds {kind} {when}"
