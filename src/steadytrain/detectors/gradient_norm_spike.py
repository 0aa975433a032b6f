"""The gradient norm of a step is far above its earlier level."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from steadytrain.core.model import FloatArray, Series, Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import Detector, Quantity
from steadytrain.statistics.calibration import Z_MIN, thresholds
from steadytrain.statistics.medians import median
from steadytrain.statistics.rolling_baseline import Track, follow, known_first_step
from steadytrain.statistics.table_episodes import stretches

LOSS_MOVED_Z = 6.0


@final
@dataclass(frozen=True)
class GradientNormSpike(Detector):
    """The gradient norm jumps far above its usual level, measured on its logarithm.

    Means:
        A batch, or the weights at that step, gave a gradient many times the usual one. It often precedes a loss spike:
        Adam's second moment lags behind it, so the next updates are too large. A jump that is clipped, is gone after a
        few steps and does not move the loss is common: a note. Norms are skewed, so the distance z is computed on the
        logarithm. Growth over more than 16 steps is not a jump and does not count.

    Causes:
        - a bad batch, or one that is mostly padding, so that few tokens carry all of the loss
        - Adam's second moment lagged the gradient (2304.13013), or beta2 is too high for this batch size
        - attention or output logits that have grown until a small change tips them (2309.14322)
        - embedding gradients that spike first (GLM-130B, 2210.02414): look at the tensors
        - a learning rate above the edge of stability

    Next:
        1. Check whether the loss followed. If not, and the norm is back, continue.
        2. Open the incident or `steadytrain show`: which tensors rose, one or all?
        3. Clip at about the usual norm. If spikes recur, that is a guard and no cure.
        4. If they recur, compare Adam's beta2 at 0.95, or a third of the learning rate.
    """

    needs: ClassVar[tuple[str, ...]] = ("gradient_norm",)
    yields_to_update: ClassVar[bool] = True
    quantity: ClassVar[Quantity | None] = "gradient_norm"
    bursts: ClassVar[bool] = True
    grows: ClassVar[bool] = True

    z: float = threshold(
        12.0,
        "robust standard deviations of the logarithm that make a spike until the run's own tail "
        "is known, never below 5. Higher than for the loss: even the logarithm of norms is skewed",
    )
    jump_ratio: float = threshold(
        3.0,
        "and above this many times the median norm of the 16 steps before: late growth under a decaying "
        "learning rate (2506.02285) is slow and healthy, and with a steady norm any step is large in z",
    )
    jump_steps: int = threshold(16, "logged steps of that median: one refresh of the reference")
    hole_steps_max: int = threshold(16, "lower steps that a spike may contain, as for the loss")
    lasting_steps: int = threshold(
        16,
        "a spike over fewer steps, while the loss stays below z = 6, is a note: clipping handles it",
    )
    warm_up_steps: int = threshold(500, "up to this step of the run a spike is only a note, as for the loss")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        norms = window.applied("gradient_norm")
        positive = norms.values > 0.0
        logs = Series(norms.steps[positive], np.log(norms.values[positive]))
        if not self._jumps(logs.values):
            return ()
        track = follow(logs)
        far = np.flatnonzero(track.z > Z_MIN)
        if not len(far):
            return ()
        far = far[track.z[far] > thresholds(track, far, before=self.z)]
        spiked = np.zeros(len(track), np.bool_)
        spiked[far] = track.values[far] > track.level[far] + np.log(self.jump_ratio)
        loss = follow(window.applied("loss")) if spiked.any() else None
        found = []
        for start, stop in stretches(spiked, hole_max=self.hole_steps_max):
            before = logs.values[max(0, track.begin + start - self.jump_steps) : track.begin + start]
            jumped = track.values[start : min(stop, start + self.jump_steps)].max()
            if len(before) and jumped < median(before) + np.log(self.jump_ratio):
                continue
            assert loss is not None
            found.append(self._symptom(track, loss, spiked, start, stop))
        return tuple(found)

    def _jumps(self, logs: FloatArray) -> bool:
        """Whether any value is far enough above one shortly before it: most windows need no track.

        A jump may take ``jump_steps`` and is compared with as many before it: all within two blocks of twice as many.
        """
        whole = len(logs) - len(logs) % (2 * self.jump_steps)
        blocks = logs[len(logs) - whole :].reshape(-1, 2 * self.jump_steps)
        if len(blocks) < 2:
            return False
        highest, lowest = blocks.max(axis=1), blocks.min(axis=1)
        return bool((highest[1:] - np.minimum(lowest[1:], lowest[:-1])).max() >= np.log(self.jump_ratio))

    def _symptom(self, track: Track, loss: Track, spiked: np.ndarray, start: int, stop: int) -> Symptom:
        first_step = known_first_step(
            track.steps, start, first_seen=track.first_seen, stride=track.stride, last_row=stop - 1
        )
        last_step = int(track.steps[stop - 1])
        peak = start + int(np.argmax(track.z[start:stop]))
        near = slice(*np.searchsorted(loss.steps, [first_step, last_step + self.lasting_steps * track.stride + 1]))
        loss_z = float(loss.z[near].max()) if len(loss.z[near]) else 0.0
        grave = stop - start >= self.lasting_steps or loss_z > LOSS_MOVED_Z
        when = f"at step {first_step}" if first_step == last_step else f"from step {first_step} to {last_step}"
        norm, usual = float(np.exp(track.values[peak])), float(np.exp(track.level[peak]))
        return Symptom(
            name="gradient-norm-spike",
            severity="warning" if grave and last_step > self.warm_up_steps else "note",
            first_step=first_step,
            last_step=last_step,
            message=f"the gradient norm jumped to {norm:.4g} {when}, {norm / usual:.3g} times its level of {usual:.4g}"
            + ("; the loss moved with it" if loss_z > LOSS_MOVED_Z else ""),
            signals=("gradient_norm",),
            numbers={
                "z": float(track.z[peak]),
                "gradient_norm": norm,
                "reference_level": usual,
                "peak_step": float(track.steps[peak]),
                "loss_z": loss_z,
                "steps": float(spiked[start:stop].sum()),
            },
        )
