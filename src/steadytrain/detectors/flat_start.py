"""The loss of a log never leaves the loss of a guess."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import Detector
from steadytrain.statistics.log_levels import Curve, curve_of
from steadytrain.statistics.medians import median

CLASSES = (
    *range(2, 21),
    50,
    64,
    100,
    128,
    200,
    256,
    257,
    260,
    512,
    1000,
    1024,
    8192,
    16384,
    21843,
    28996,
    30522,
    32000,
)
CLASSES += (32768, 49152, 50257, 50265, 50304, 50432, 65536, 100277, 128256, 151936, 152064, 256000)
"""Numbers of classes and vocabularies in use; a guess costs their logarithm."""

ROWS_MIN = 8


@final
@dataclass(frozen=True)
class FlatStart(Detector):
    """The loss of a log stays at what a guess costs.

    Means:
        The log begins at the logarithm of a usual number of classes (or of the vocabulary, where it is known), never
        got clearly below and stands there still. It looks only at whole logs (`steadytrain analyze`).

    Causes:
        - a learning rate of zero or far too low, or so high that the model died in its first steps
        - parameters that the optimizer does not hold, that are frozen or detached
        - labels that have nothing to do with the inputs: shuffled, shifted, all masked

    Next:
        1. Overfit one batch: 200 steps should bring its loss near zero.
        2. Print a batch with its labels as the model gets them.
        3. Compare ten times and a tenth of the learning rate.
    """

    needs: ClassVar[tuple[str, ...]] = ("loss",)
    of_logs: ClassVar[bool] = True

    match_share: float = threshold(0.01, "how near the level of the second half is to the loss of a guess")
    start_share: float = threshold(0.06, "how near the first rows are: initial outputs cost a little more than a guess")
    fall_share: float = threshold(0.05, "a level that was below the guess by this share has learned something")
    noise_share: float = threshold(0.08, "of the level: a loss that varies more from row to row is not judged")
    span_steps: int = threshold(
        100, "steps that the log spans at least; many healthy runs stand still for their warm-up"
    )
    epochs_min: int = threshold(5, "or rows of an epoch each")
    passes_min: float = threshold(2.0, "or eight rows that span so many epochs")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        curve = curve_of(window, window.applied("loss"))
        if curve is None or not curve.starts or window.facts.get("loss_may_rise") or not self._long(window, curve):
            return ()
        level = median(curve.values[len(curve) // 2 :])
        guess = self._guess(window, level, curve.initial)
        if guess is None or curve.noise > self.noise_share * guess:
            return ()
        if curve.best[-1] < (1.0 - self.fall_share) * guess or abs(curve.level[-1] - guess) > self.match_share * guess:
            return ()
        return (
            Symptom(
                name="flat-start",
                severity="warning",
                first_step=int(curve.steps[0]),
                last_step=int(curve.steps[-1]),
                message=f"the loss is {level:.4g} at the end as at the beginning, what a guess among "
                f"{round(math.exp(guess)):,} classes costs: nothing was learned",
                signals=("loss",),
                numbers={"loss": level, "level": guess, "initial_loss": curve.initial},
            ),
        )

    def _long(self, window: Window, curve: Curve) -> bool:
        epoch = window.applied("epoch")
        if len(epoch) >= ROWS_MIN and epoch.values[-1] - epoch.values[0] >= self.passes_min:
            return True
        if len(epoch) and epoch.values[-1] - epoch.values[0] >= self.epochs_min - 1 and len(curve) >= self.epochs_min:
            return True
        return len(curve) >= ROWS_MIN and int(curve.steps[-1]) - int(curve.steps[0]) + curve.stride >= self.span_steps

    def _guess(self, window: Window, level: float, initial: float) -> float | None:
        known = [window.facts[name] for name in ("baseline_loss",) if window.facts.get(name, 0.0) > 0.0]
        known += [math.log(window.facts[name]) for name in ("vocabulary",) if window.facts.get(name, 0.0) > 1.0]
        guesses = known or [math.log(count) for count in CLASSES]
        near = min(guesses, key=lambda guess: abs(guess - level))
        close = abs(level - near) <= self.match_share * near and abs(initial - near) <= self.start_share * near
        return near if close else None
