"""A step's loss stands far above the loss of a while ago."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, final

import numpy as np

from steadytrain.model import Symptom, Window
from steadytrain.reference import follow, known_first_step, newest_episode
from steadytrain.symptoms import Detector

Z_MIN = 6.0
"""Below this no threshold is an alarm: at z > 2.5 to 3 one healthy step in a hundred "spikes" (good for clipping)."""


@final
@dataclass(frozen=True)
class LossSpike(Detector):
    """The loss of a step stands far above that of the steps before.

    Means:
        One batch, or a few in a row, cost far more than the run's own noise explains. Most spikes are gone within 64
        steps and cost little; one that does not come back is reported as divergence as well. The distance z is
        counted from the median of 512 steps that ended 64 steps earlier, in robust standard deviations.

    Causes:
        - a bad batch: repeated n-grams, another language, a corrupt file (OLMo 2, 2501.00656)
        - the update before it was too large: the second moment of Adam lagged the gradient (2304.13013), or the
          learning rate stands at the edge of stability (2103.00065)
        - a learning rate that jumped: a restart of the schedule, a resume that lost optimizer state
        - a change of data at an epoch or stage boundary; the end of a repeated stretch looks like a jump as well
        - heavy-tailed loss on small batches: then it recurs and does no harm

    Next:
        1. Look at the 64 steps after it. Back at the old level: note it and go on.
        2. Look at the gradient norm and the learning rate of the steps just before, not only at the spike.
        3. Replay the step unchanged before you blame its batch: the batches of known spikes were harmless from another
           state (PaLM, 2204.02311; Molybog et al., 2304.09871).
        4. If spikes recur, compare them at a third of the learning rate and with Adam's beta2 at 0.95.
    """

    needs: ClassVar[tuple[str, ...]] = ("loss",)

    z: float = field(
        default=10.0,
        metadata={
            "about": "a spike stands above this many robust standard deviations; never below 6. In 5e5 healthy "
            "simulated steps 10 never alarmed on Gaussian noise, 5 times in 1e5 on Student's t with 5 degrees of "
            "freedom, 25 times on strongly skewed noise and 67 times on t with 3 degrees of freedom"
        },
    )
    recent_steps: int = field(
        default=64,
        metadata={
            "about": "how far back from the newest step a spike is still reported: four looks at 16 steps each, so "
            "that none is lost when a look fails"
        },
    )
    hole_steps_max: int = field(
        default=16,
        metadata={
            "about": "lower steps that a spike may hold and still be one: chosen as one refresh of the reference, so "
            "that an oscillating fault is one symptom"
        },
    )
    warm_up_steps: int = field(
        default=500,
        metadata={"about": "up to this step of the run a spike is only a note: early loss falls and jumps by nature"},
    )

    def __post_init__(self) -> None:
        if not self.z >= Z_MIN:
            raise ValueError(
                f"z={self.z}: a spike threshold below {Z_MIN:g} marks healthy steps; use {Z_MIN:g} or more"
            )

    def check(self, window: Window) -> tuple[Symptom, ...]:
        symptom = self._newest(window)
        return (symptom,) if symptom is not None else ()

    def _newest(self, window: Window) -> Symptom | None:
        track = follow(window.applied("loss"))
        spike = newest_episode(track.z > self.z, hole_rows_max=self.hole_steps_max)
        if spike is None:
            return None
        first, last = spike
        last_step = int(track.steps[last])
        if last_step <= window.steps[-1] - self.recent_steps * track.stride:
            return None
        first_step = known_first_step(track.steps, first, first_seen=track.first_seen, stride=track.stride)
        peak = first + int(np.argmax(track.z[first : last + 1]))
        when = f"at step {first_step}" if first_step == last_step else f"from step {first_step} to {last_step}"
        return Symptom(
            name="loss-spike",
            severity="note" if last_step <= self.warm_up_steps else "warning",
            first_step=first_step,
            last_step=last_step,
            message=f"the loss spiked to {track.values[peak]:.4g} {when}, {track.z[peak]:.3g} robust standard "
            f"deviations above its median of {track.median[peak]:.4g}",
            signals=("loss",),
            numbers={
                "z": float(track.z[peak]),
                "z_threshold": self.z,
                "loss": float(track.values[peak]),
                "peak_step": float(track.steps[peak]),
                "reference_median": float(track.median[peak]),
                "reference_scale": float(track.scale[peak]),
                "steps": float((track.z[first : last + 1] > self.z).sum()),
            },
        )
