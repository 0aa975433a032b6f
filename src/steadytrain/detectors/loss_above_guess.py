"""The loss of a classifier stays far above the loss of a guess."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from steadytrain.core.model import FloatArray, Series, Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import Aim, Detector
from steadytrain.statistics.guess_levels import Guess, guesses
from steadytrain.statistics.medians import median
from steadytrain.statistics.rolling_baseline import holds_start, stride_of
from steadytrain.statistics.script_rows import script_rows

FIRST_STEPS, LATE_STEPS = 3, 16
"""Steps whose median is where the loss began, and where it was at the end of the first :attr:`late_steps`."""


@final
@dataclass(frozen=True)
class LossAboveGuess(Detector):
    """A classifier is worse than a guess, from its first steps on.

    Means:
        The loss is the mean cost of a label by the scores of a layer (measured in the first looks), so a model that
        knows nothing starts near `ln C`. This one stays far above the best guess that ignores the input, and its last
        steps do so too: it is confident and wrong. A note after 100 steps, a warning after 150. If it began at several
        times that cost and needs 80 steps to come down to it, that is a warning too. Losses that scale
        their scores on purpose, as of cosines, are not judged, and neither are losses with other terms.

    Causes:
        - initial weights that are too large, or residual branches that double the signal in each block
        - an output layer that shares the weights of an embedding, which `nn.Embedding` draws from N(0, 1)
        - inputs that are not scaled, in front of layers without a norm
        - first steps that are too large: no warm-up, or a learning rate that is too high

    Next:
        1. Compare the first loss with `ln C`. If it is far above, the initialisation or the inputs are to blame.
        2. Print mean and standard deviation of the inputs and of each layer's output at step 1.
        3. If the first loss is near `ln C`, warm the learning rate up, or lower it.
    """

    needs: ClassVar[tuple[str, ...]] = ("loss", "script.value")
    waits_for: ClassVar[str] = "note_steps"
    aim: ClassVar[Aim] = "progress"

    note_steps: int = threshold(100, "steps from the start before a note. Chosen")
    warning_steps: int = threshold(150, "steps from the start before a warning. Chosen")
    level_share: float = threshold(1.5, "of the loss of a guess: what the loss stays above. Chosen")
    level_nats: float = threshold(0.5, "nats above that, too: with few classes, small scores cost as much. Chosen")
    far_share: float = threshold(3.0, "of the loss of a guess, at which a loss begins far above it. Chosen")
    far_nats: float = threshold(4.0, "nats above that. Chosen")
    late_share: float = threshold(1.1, "of the loss of a guess: what such a loss is still above then. Chosen")
    late_steps: int = threshold(80, "steps from the start in which such a loss has to come down. Chosen")
    row_share: float = threshold(0.9, "share of the last half of the steps that are above it")
    same_share: float = threshold(0.1, "how near the loss is to the cost of a label in the looks: it is nothing else")
    looks_min: int = threshold(3, "looks that say so")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        loss = window.applied("loss")
        if len(loss) < self.note_steps or not holds_start(window.steps, stride=stride_of(window.steps)):
            return ()
        guess = next((one for one in guesses(window) if self._is_cost(window, loss, one.place)), None)
        if guess is None or not np.isfinite(loss.values).all():
            return ()
        bound = self.level_share * guess.level + self.level_nats
        half = loss.values[len(loss) // 2 :]
        if (half > bound).mean() < self.row_share or median(half[len(half) // 2 :]) <= bound:
            return (self._late(loss, guess),) if self._comes_down_late(loss, guess) else ()
        return (self._told(loss, guess, bound, median(half[len(half) // 2 :])),)

    def _comes_down_late(self, loss: Series, guess: Guess) -> bool:
        """Whether the loss began far above the guess and was still above it after the steps of a note."""
        first = median(loss.values[:FIRST_STEPS])
        far = first > self.far_share * guess.level + self.far_nats
        return far and median(self._then(loss)) > self.late_share * guess.level

    def _then(self, loss: Series) -> FloatArray:
        """The last losses in which it has to have come down."""
        return loss.values[self.late_steps - LATE_STEPS : self.late_steps]

    def _late(self, loss: Series, guess: Guess) -> Symptom:
        first, then = float(loss.values[0]), median(self._then(loss))
        return Symptom(
            name="loss-above-guess",
            severity="warning",
            first_step=int(loss.steps[0]),
            last_step=int(loss.steps[self.late_steps - 1]),
            message=f"the loss of {guess.place} began at {first:.4g} and was still {then:.4g} after {self.late_steps} "
            f"steps, where a guess among {guess.classes:,} classes costs {guess.level:.4g}",
            signals=("loss", "script.value"),
            numbers={"loss": then, "level": guess.level, "initial_loss": first},
        )

    def _told(self, loss: Series, guess: Guess, bound: float, now: float) -> Symptom:
        first = float(loss.values[0])
        began = (
            f"it began at {first:.4g}"
            if first > guess.level + 1.0
            else f"it began at {first:.4g} and rose to {float(loss.values[: self.note_steps].max()):.4g}"
        )
        return Symptom(
            name="loss-above-guess",
            severity="warning" if len(loss) >= self.warning_steps else "note",
            first_step=int(loss.steps[0]),
            last_step=int(loss.steps[-1]),
            message=f"the loss of {guess.place} is {now:.4g} after {len(loss)} steps, far above what a guess among "
            f"{guess.classes:,} classes costs, {guess.level:.4g}; {began}",
            signals=("loss", "script.value"),
            numbers={"loss": now, "level": guess.level, "initial_loss": first, "bound": bound},
        )

    def _is_cost(self, window: Window, loss: Series, place: str) -> bool:
        """Whether the recorded loss is the mean cost of a label at ``place``, and nothing else."""
        for row in script_rows(window, "likelihood"):
            if row.place == place:
                _, here, there = np.intersect1d(loss.steps, row.steps, return_indices=True)
                known, cost = loss.values[here], row.values[there]
                return len(here) >= self.looks_min and bool((abs(known - cost) <= self.same_share * cost).all())
        return False
