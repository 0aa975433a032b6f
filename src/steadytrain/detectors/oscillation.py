"""The loss swings up and down around its level."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray

from steadytrain.core.model import FloatArray, Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import Detector
from steadytrain.statistics.medians import row_medians
from steadytrain.statistics.reference import MAD_TO_SIGMA
from steadytrain.statistics.rolling_baseline import follow, known_first_step
from steadytrain.statistics.table_episodes import stretches

BLOCK_STEPS = 64
WINSOR = 4.0
PERIOD_STEPS_MAX = 21  # slower swings cannot be told from noise that wanders


@final
@dataclass(frozen=True)
class Oscillation(Detector):
    """The loss swings around a constant level, by more than its noise.

    Means:
        Over 64 steps the loss varies at least twice as much as before, its mean has not moved, and the swing is
        regular: each step goes against the one before, or one period dominates the spectrum. Training still works, but
        at the edge of stability: a slightly higher learning rate would break it.

    Causes:
        - a learning rate at the edge of stability (2103.00065): two over the sharpness, for large batches
        - momentum too high for this learning rate
        - batches that alternate: two sources taken in turns, sorted lengths, a short cycle of the data
        - a controller that overshoots: the loss itself sets a learning rate or the weight of a loss term

    Next:
        1. Look at the period. Two steps: the learning rate. A whole number of batches: the order of the data.
        2. Evaluate a fixed batch at a few steps in a row. If its loss swings too, the weights swing; if not, the data
           do.
        3. Compare half of the learning rate, and the same with Adam's beta1 at 0.8.
    """

    needs: ClassVar[tuple[str, ...]] = ("loss",)
    grows: ClassVar[bool] = True

    swing_ratio: float = threshold(
        2.0,
        "robust standard deviation over 64 steps divided by that of the reference; a rhythm is "
        "needed, too. In 1e6 healthy simulated steps of six kinds of noise nothing passed both",
    )
    turn_max: float = threshold(
        -0.3,
        "lag-1 autocorrelation over 64 steps below which each step goes against the one before. Its "
        "standard error there is 0.12",
    )
    chance_max: float = threshold(
        1e-4, "Fisher's test: probability that noise without a period has so high a periodogram peak"
    )
    shift_scales: float = threshold(
        1.0, "how far the median of the 64 steps may be from the level, in their own deviations"
    )
    warm_up_steps: int = threshold(500, "up to this step of the run it is only a note, like every statistical alarm")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        track = follow(window.applied("loss"))
        grid = track.steps // (BLOCK_STEPS * track.stride)
        edges = np.flatnonzero(np.diff(grid)) + 1
        if not len(edges) or len(track) - edges[0] < BLOCK_STEPS:
            return ()
        begin, count = int(edges[0]), (len(track) - int(edges[0])) // BLOCK_STEPS
        blocks = track.values[begin : begin + count * BLOCK_STEPS].reshape(count, BLOCK_STEPS)
        middle = row_medians(blocks)
        away = blocks - middle[:, None]
        swing = MAD_TO_SIGMA * row_medians(np.abs(away))
        heads = begin + BLOCK_STEPS * np.arange(count)
        wide = swing > self.swing_ratio * track.scale[heads]
        level_kept = np.abs(middle - track.level[heads]) < self.shift_scales * swing
        swinging = wide & level_kept
        if not swinging.any():
            return ()
        chosen = np.flatnonzero(swinging)
        swinging[chosen] = self._rhythm(away[chosen] / swing[chosen, None])
        found = []
        for start, stop in stretches(swinging, hole_max=1):
            first, last = int(heads[start]), int(heads[stop - 1]) + BLOCK_STEPS - 1
            first_step = known_first_step(
                track.steps, first, first_seen=track.first_seen, stride=track.stride, last_row=last
            )
            last_step = int(track.steps[last])
            widest = start + int(np.argmax(swing[start:stop] / track.scale[heads[start:stop]]))
            period = _period(away[widest] / swing[widest])
            found.append(
                Symptom(
                    name="oscillation",
                    severity="note" if last_step <= self.warm_up_steps else "warning",
                    first_step=first_step,
                    last_step=last_step,
                    message=f"the loss swings with a period of about {period:.2g} logged steps from step {first_step} "
                    f"to {last_step}, {swing[widest] / track.scale[heads[widest]]:.2g} times as wide as its noise",
                    signals=("loss",),
                    numbers={
                        "swing": float(swing[widest]),
                        "reference_scale": float(track.scale[heads[widest]]),
                        "reference_level": float(track.level[heads[widest]]),
                        "period_rows": period,
                    },
                )
            )
        return tuple(found)

    def _rhythm(self, z: FloatArray) -> NDArray[np.bool_]:
        """Which rows of ``z`` turn at every step, or have a period."""
        z = np.clip(z, -WINSOR, WINSOR)
        z = z - z.mean(axis=1, keepdims=True)
        turn = (z[:, 1:] * z[:, :-1]).sum(axis=1) / np.maximum((z * z).sum(axis=1), 1e-300)
        power = _powers(z)
        peak = power.max(axis=1) / np.maximum(power.sum(axis=1), 1e-300)
        chance = power.shape[1] * (1.0 - peak) ** (power.shape[1] - 1)
        fast = BLOCK_STEPS / (1 + power.argmax(axis=1)) <= PERIOD_STEPS_MAX
        rhythm: NDArray[np.bool_] = (turn < self.turn_max) | ((chance < self.chance_max) & fast)
        return rhythm


def _powers(z: FloatArray) -> FloatArray:
    """Periodogram of each row without its constant: periods of 64, 32, ... 2 rows."""
    powers: FloatArray = np.abs(np.fft.rfft(z, axis=1))[:, 1:] ** 2
    return powers


def _period(z: FloatArray) -> float:
    z = np.clip(z, -WINSOR, WINSOR)
    return float(BLOCK_STEPS / (1 + int(_powers((z - z.mean())[None])[0].argmax())))
