"""The live training as interventions see it: its optimizers and gradients, its healthy norms, copies of its state."""

from __future__ import annotations

import math
import weakref
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from steadytrain.capture.snapshots.good_state import nonfinite_parameters
from steadytrain.capture.step.gate import Measurement
from steadytrain.capture.step.live_run import LiveRun
from steadytrain.guard.setting_jumps import highest_of
from steadytrain.guard.state_copies import StateCopies, StateCopy
from steadytrain.statistics.medians import median
from steadytrain.trial_runs.launched_script import CannotApplyError, Launched

NORMS_KEPT = 512
USUAL_OF = 256
USUAL_SHARE = 0.9
CLIPPED_OF, CLIPPED_MIN = 16, 12
UNDONE_MAX = 256
"""A roll-back that undoes more updates costs more than most troubles."""

TOGETHER = "several ranks train together, where the guard intervenes in nothing: it only refuses bad updates"
TOO_LATE = "{why}, so nothing is changed, and what began before this step is only recorded"
TOO_FAR = "the last state from before it is that after step {step}, {count:,} updates ago"
NO_COPY = "no finite state from before step {step} is kept"


class Live(Launched):
    """Serves the stream at the gate (``stream``).

    Args:
        lowest_share: the smallest share of the script's learning rate.
    """

    def __init__(self, run: LiveRun, copies: StateCopies, *, lowest_share: float) -> None:
        super().__init__()
        self.run = run
        self.copies = copies
        self.lowest_share = lowest_share
        self.step = 0
        self.onset = 0
        self.attempt = 0
        self.restored: StateCopy | None = None
        """The state that the run has rolled back to in this rung."""

        self.left: StateCopy | None = None
        """The state that this roll-back left, until it is known whether the roll-back helped."""

        self.undone: tuple[int, int] | None = None
        """The first and the last step that the roll-back undid."""

        self._measured: Measurement | None = None
        self._factor = 1.0
        self._norms: dict[str, deque[tuple[int, float]]] = {}

    @property
    def roots(self) -> list[nn.Module]:
        """The models of the stream, as far as the script still holds them: a run may go on to the next training."""
        return [model for held in self._roots if (model := held()) is not None]

    @roots.setter
    def roots(self, models: Iterable[nn.Module]) -> None:
        self._roots = [weakref.ref(one) for one in models]

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        """Before the first gate the one that the script made last."""
        made = self.run.made() if self.stream is None else None
        return super().optimizers if made is None else [made]

    def cannot(self, why: str) -> None:
        """Raises: the intervention cannot be made."""
        raise CannotApplyError(why)

    def take_copy(self, step: int, root: nn.Module) -> None:
        """Copy the state. Before the first gate only the model that is called is known, and the optimizer that was made
        last."""
        run = self.run
        made = run.made()
        roots = [one for stream in run.streams for one in stream.roots()] or [root]
        parameters = [one for stream in run.streams for one in stream.parameters]
        optimizers = [one for stream in run.streams for one in stream.optimizers] or ([made] if made else [])
        times = run.streams[0].history.window().series("step_s").values[-8:] if run.streams else ()
        step_s = median(np.asarray(times)) if len(times) else 0.0
        self.copies.take(step, roots, parameters, optimizers, step_s=step_s)

    # -- the gate --------------------------------------------------------------------------------------------------

    def measured(self, measured: Measurement) -> None:
        """Loss and gradients of the step at the gate are finite."""
        self._measured, self._factor = measured, 1.0

    def applied_norm(self) -> float | None:
        if self._measured is None:
            return None
        scalars = self._measured.record.scalars
        norm = scalars.get("gradient_norm_applied")
        norm = norm if norm is not None else scalars.get("gradient_norm")
        return None if norm is None else norm * self._factor

    @property
    def gradient_scale(self) -> float:
        return 1.0 if self._measured is None else self._measured.scale

    def scale_gradients(self, factor: float) -> None:
        super().scale_gradients(factor)
        self._factor *= factor

    @property
    def gradient_factor(self) -> float:
        """What the gradients of this step were multiplied by."""
        return self._factor

    def keep_norm(self, stream: str, step: int) -> None:
        """The step at the gate is on record: keep its norm."""
        norm = self.applied_norm()
        if norm is not None and math.isfinite(norm):
            self._norms.setdefault(stream, deque(maxlen=NORMS_KEPT)).append((step, norm))

    def norms_before(self, stream: str) -> deque[tuple[int, float]]:
        """The steps and applied norms of the last steps of ``stream``."""
        return self._norms.setdefault(stream, deque(maxlen=NORMS_KEPT))

    def norms_seen(self) -> list[float]:
        if self.stream is None:
            return []
        norms = self.norms_before(self.stream.name)
        return [norm for step, norm in norms if step < self.onset][-USUAL_OF:]

    @property
    def script_clips(self) -> bool:
        """Whether the script clipped the gradients of the step at the gate."""
        return self._measured is not None and self._measured.record.scalars.get("clip_coefficient") is not None

    def clipping_lost(self) -> bool:
        """Whether the script clipped its gradients in the steps before the onset, and in none since."""
        if self.stream is None:
            return False
        clipped = self.stream.history.window().series("clip_coefficient").steps
        before = clipped[(clipped < self.onset) & (clipped >= self.onset - CLIPPED_OF)]
        return len(before) >= CLIPPED_MIN and not (clipped >= self.onset).any() and not self.script_clips

    def usual_norm(self) -> float:
        healthy = self.norms_seen()
        if not healthy and self.stream is not None:
            healthy = [norm for _, norm in list(self.norms_before(self.stream.name))[:1]]
        return float(np.quantile(healthy, USUAL_SHARE)) if healthy else 0.0

    # -- between two steps -----------------------------------------------------------------------------------------

    def rung_begins(self, onset: int, attempt: int) -> None:
        """Interventions for trouble since step ``onset`` follow, as the ``attempt``-th rung, from 0."""
        self.onset, self.attempt = onset, attempt
        self.restored = self.left = self.undone = None

    def rate(self) -> float:
        """The script's learning rate of the first group, 0 if there is none."""
        return next((float(group["lr"]) for group in self.groups if group.get("lr") is not None), 0.0)

    def settings_then(self) -> list[tuple[dict[str, Any], dict[str, float]]]:
        """The groups with their settings in the state that the run rolled back to. One that was added since has the
        highest of the others."""
        found: list[tuple[dict[str, Any], dict[str, float]]] = []
        for optimizer in self.optimizers:
            then = self.restored.settings.get(id(optimizer), []) if self.restored is not None else []
            added = [highest_of(then)] * (len(optimizer.param_groups) - len(then)) if then else []
            found += zip(optimizer.param_groups, [*then, *added], strict=False)
        return found

    def groups_then(self) -> list[tuple[dict[str, Any], float]]:
        """The groups with their learning rates in the state that the run rolled back to. One that was frozen then has
        the highest rate of the others."""
        pairs = [(group, then["lr"]) for group, then in self.settings_then() if "lr" in group and "lr" in then]
        highest = max((rate for _, rate in pairs), default=0.0)
        return [(group, rate or highest) for group, rate in pairs]

    def rate_then_over_now(self) -> float:
        """The learning rate at the state that the run rolled back to, as a share of the present one; 1 at most."""
        pairs = [(rate, float(group["lr"])) for group, rate in self.groups_then()]
        return min([1.0, *(then / now for then, now in pairs if then > 0 and now > 0)])

    def roll_back(self, margin: int) -> tuple[Mapping[str, float], Mapping[str, float]]:
        """Return to a state from at least ``margin`` steps before the onset, more in later attempts.

        Raises:
            CannotApplyError: there is no such state.
        """
        assert self.stream is not None
        copy = self._copy_to_return_to(margin)
        self.left = copy.now(self.step) if self.copies.fits(copy) else None
        copy.restore()
        self.copies.forget_after(copy.step)
        self.restored, self.undone = copy, (copy.step + 1, self.step)
        return {"step": float(self.step)}, {"step": float(copy.step)}

    def why_too_far(self, margin: int, onset: int | None = None) -> str | None:
        """Why no state from before the onset can be returned to, though copies are taken; None if one can."""
        try:
            self._copy_to_return_to(margin, onset)
        except CannotApplyError as error:
            return str(error)
        return None

    def _copy_to_return_to(self, margin: int, onset: int | None = None) -> StateCopy:
        wanted = max(1, (self.onset if onset is None else onset) - margin * 2**self.attempt)
        copy = self.copies.before(wanted)
        if copy is None:
            raise CannotApplyError(NO_COPY.format(step=wanted))
        if self.step - copy.step > UNDONE_MAX:
            raise CannotApplyError(TOO_FAR.format(step=copy.step, count=self.step - copy.step))
        return copy

    def return_to_left(self) -> tuple[Mapping[str, float], Mapping[str, float]] | None:
        """Undo the roll-back: it did not help. None if what it left is not finite, or was not kept."""
        left, self.left = self.left, None
        if left is None or not left.is_finite:
            return None
        left.restore()
        self.copies.forget_after(left.step)
        self.restored, self.undone = left, (left.step + 1, self.step)
        return {"step": float(self.step)}, {"step": float(left.step)}

    def is_damaged(self) -> bool:
        """Whether a weight holds NaN or Inf."""
        return self.stream is not None and bool(nonfinite_parameters(self.stream))
