"""The loss stays where it began."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from steadytrain.core.model import SEVERITIES, Series, Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import Aim, Detector
from steadytrain.statistics.guess_levels import guesses, level_of, line_through, mean_guesses, steps_at_work
from steadytrain.statistics.medians import median
from steadytrain.statistics.rolling_baseline import holds_start, stride_of
from steadytrain.statistics.script_rows import script_rows
from steadytrain.statistics.table_episodes import applied_cells, known_first_reading

CLASSES = (2, 3, 4, 5, 8, 10, 16, 20, 50, 100, 1000)
"""Numbers of classes whose logarithm stands in for the loss of a guess if the run does not report it."""

FIRST_STEP_MAX = 64
INITIAL_ROWS = 5
ROWS_MIN = 32


@final
@dataclass(frozen=True)
class NoLearning(Detector):
    """The loss has not left its first level, though the learning rate is up.

    Means:
        After the warm-up the loss is still within 2 % of the best guess that ignores the input, or the weights do not
        change (a note while the learning rate still rises). If the run does not give the loss of that guess, the
        detector uses the logarithm of a usual number of classes. A loss that is merely constant at another value is a
        note. In a watched run the detector knows the classes and labels of a likelihood, and the variance of the
        targets of a squared error: it notes a loss that stays at their guess after 64 steps, and warns after 200 at a
        rate that is up. It also reports a likelihood that does not change by a single bit, and a gradient that is
        exactly zero from the first step on.

    Causes:
        - parameters that the optimizer does not hold, or that are frozen; a graph that is cut (`detach`, `no_grad`)
        - labels that have nothing to do with the inputs: shuffled, shifted, all the same, all masked
        - a learning rate of zero or far too low, or so high that the model died in its first steps (dead units)
        - updates that half precision rounds away (see lost-update)
        - gradients that are clipped to nothing, or a loss scale that is divided out twice

    Next:
        1. Overfit one batch without dropout and weight decay: 200 steps should bring its loss near zero.
        2. Look at the update ratio of the tensors: about 1e-3 is usual, below 1e-5 nothing moves.
        3. Print a batch with its labels as the model gets them.
        4. Compare ten times and a tenth of the learning rate.
    """

    needs: ClassVar[tuple[str, ...]] = ("loss", "tensors.update_ratio", "script.value")
    waits_for: ClassVar[str] = "early_steps"
    leaves_open: ClassVar[bool] = True
    aim: ClassVar[Aim] = "progress"

    level_share: float = threshold(
        0.02, "within this share of the loss of a guess, or of the initial loss, nothing was learned"
    )
    match_share: float = threshold(
        0.005, "an initial loss this near to the logarithm of a number of classes is the loss of a guess"
    )
    noise_share: float = threshold(
        0.1,
        "a loss that varies by more than this share of itself is not judged: its size means nothing "
        "(losses of reinforcement learning)",
    )
    span_steps: int = threshold(1000, "optimizer steps before a report; half of it if the warm-up is known to be over")
    update_ratio: float = threshold(
        1e-5, "median of update norm over weight norm below which weights do not change; 1e-3 is usual"
    )

    early_steps: int = threshold(
        64, "steps at the loss of a guess, known from the classes or labels of the loss, before a note"
    )
    early_warning_steps: int = threshold(
        200,
        "such steps at a learning rate that is up, and does not rise, before a warning (three classes or more). Chosen",
    )
    early_rate_share: float = threshold(0.1, "share of the largest learning rate from which on these steps count")
    error_share: float = threshold(0.005, "standard error of the level, as a share of it, above which it is not judged")
    balanced_share: float = threshold(
        0.9,
        "labels whose entropy is below this share of a uniform guess are imbalanced: their frequencies alone take "
        "long to improve on, so it is a note",
    )
    constant_steps: int = threshold(
        16, "first steps with one loss, to the last bit, before a note, if it is a likelihood in float32"
    )
    constant_warning_steps: int = threshold(64, "such steps before a warning")

    zero_steps: int = threshold(16, "first steps whose gradient is exactly zero, with a loss, before a warning. Chosen")
    fallen_share: float = threshold(0.8, "a loss below this share of its first level did learn. Chosen")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        loss = window.applied("loss")
        found = [self._still(window, loss), self._at_guess(window, loss), self._constant(window, loss)]
        found.append(self._without_gradient(window, loss))
        told = [one for one in found if one is not None] or [one for one in (self._frozen(window),) if one is not None]
        return tuple(sorted(told, key=lambda one: -SEVERITIES.index(one.severity))[:1])

    def _at_guess(self, window: Window, loss: Series) -> Symptom | None:
        """A loss that stands at the guess of its own classes from the start on, without a fall."""
        known = [*guesses(window), *mean_guesses(window)]
        if not known or len(loss) < self.early_steps or not holds_start(window.steps, stride=stride_of(window.steps)):
            return None
        rate = window.applied("learning_rate")
        settled = loss.values[len(loss) // 4 :]
        late = settled[len(settled) // 2 :]
        level, error = level_of(late)
        guess = min(known, key=lambda one: abs(one.level - level))
        if abs(level - guess.level) > self.level_share * guess.level or error > self.error_share * guess.level:
            return None
        if len(rate) and rate.values.max() <= 0.0:
            return None
        comes_down = level - error > guess.level  # from a bad initial output, and the guess may be where it stops
        stops = comes_down and line_through(late).after(len(loss)) >= (1.0 - self.error_share) * guess.level
        if line_through(settled).falls and not stops:
            return None
        at_work = steps_at_work(rate, self.early_rate_share)
        of = f"a guess among {guess.classes:,} classes" if guess.classes else "the mean of the targets"
        certain = not guess.classes or (
            guess.classes > 2 and guess.level >= self.balanced_share * math.log(guess.classes)
        )
        return Symptom(
            name="no-learning",
            severity="warning" if certain and (at_work or 0) >= self.early_warning_steps else "note",
            first_step=int(loss.steps[0]),
            last_step=int(loss.steps[-1]),
            message=f"the loss of {guess.place} stays at {level:.4g} for {len(loss)} steps, within "
            f"{self.level_share:.0%} of what {of} costs, {guess.level:.4g}",
            signals=("loss", "script.value"),
            numbers={"loss": level, "level": guess.level, "classes": float(guess.classes)},
        )

    def _constant(self, window: Window, loss: Series) -> Symptom | None:
        """A loss that has had one value since the start, though its gradient is not zero."""
        norms, rate = window.applied("gradient_norm"), window.applied("learning_rate")
        if len(loss) < self.constant_steps or not holds_start(window.steps, stride=stride_of(window.steps)):
            return None
        value = float(loss.values[0])
        if value == 0.0 or (loss.values != value).any() or not len(norms) or not (norms.values > 0.0).all():
            return None
        if steps_at_work(rate, self.early_rate_share) is None:
            return None  # the rate is zero, or still rises
        if not script_rows(window, "classes") or _is_coarse(value):
            return None  # loss-collapse notes it
        return Symptom(
            name="no-learning",
            severity="warning" if len(loss) >= self.constant_warning_steps else "note",
            first_step=int(loss.steps[0]),
            last_step=int(loss.steps[-1]),
            message=f"the loss is {value:.7g} to the last bit in {len(loss)} steps, though its gradient is not zero",
            signals=("loss", "gradient_norm"),
            numbers={"loss": value, "steps": float(len(loss))},
        )

    def _without_gradient(self, window: Window, loss: Series) -> Symptom | None:
        """A loss whose gradient has been exactly zero since the start."""
        norms = window.applied("gradient_norm")
        if len(norms) < self.zero_steps or not holds_start(window.steps, stride=stride_of(window.steps)):
            return None
        if (norms.values != 0.0).any() or len(loss) < len(norms) or not (loss.values != 0.0).all():
            return None  # without a reward yet, or with every pair apart, the loss is zero too
        return Symptom(
            name="no-learning",
            severity="warning",
            first_step=int(norms.steps[0]),
            last_step=int(norms.steps[-1]),
            message=f"the gradient of all parameters is exactly 0 in each of {len(norms)} steps, though the loss is "
            f"{median(loss.values):.4g}: dead units, a saturated output or a graph that is cut",
            signals=("gradient_norm", "loss"),
            numbers={"loss": median(loss.values), "steps": float(len(norms))},
        )

    def _still(self, window: Window, loss: Series) -> Symptom | None:
        if len(loss) < ROWS_MIN or not holds_start(window.steps, stride=stride_of(window.steps)):
            return None
        if loss.steps[0] > FIRST_STEP_MAX or loss.steps[-1] - loss.steps[0] < self._span(window, loss):
            return None
        initial = median(loss.values[:INITIAL_ROWS])
        half = loss.values[len(loss) // 2 :]
        now = median(half)
        noise = median(np.abs(half - now))
        if now <= 0.0 or noise > self.noise_share * now:
            return None
        guess = self._guess(window, initial)
        level = initial if guess is None else guess
        newest = median(half[len(half) // 2 :])
        if max(abs(now - level), abs(newest - level)) > self.level_share * level:
            return None
        what = "its first level" if guess is None else "what a guess costs that ignores the input"
        balanced = window.facts.get("optimizers_in_turn", 1.0) > 1  # a discriminator guesses where a GAN succeeds
        return Symptom(
            name="no-learning",
            severity="note" if guess is None or balanced else "warning",
            first_step=int(loss.steps[0]),
            last_step=int(loss.steps[-1]),
            message=f"the loss is {newest:.4g} after {loss.steps[-1]} steps, within {self.level_share:.0%} of {what}, "
            f"{level:.4g}",
            signals=("loss",),
            numbers={"loss": newest, "initial_loss": initial, "level": level},
        )

    def _span(self, window: Window, loss: Series) -> int:
        """How long to wait: less where the learning rate was up for half of it already."""
        rate = window.applied("learning_rate")
        if not len(rate) or rate.values.max() <= 0.0:
            return self.span_steps
        high = rate.steps[rate.values >= 0.9 * rate.values.max()]
        return max(self.span_steps // 2, 2 * int(high[0] - loss.steps[0]))

    def _guess(self, window: Window, initial: float) -> float | None:
        for name in ("baseline_loss", "vocabulary"):
            if name in window.facts and window.facts[name] > 0.0:
                value = window.facts[name]
                return value if name == "baseline_loss" else math.log(max(value, 2.0))
        near = min((math.log(count) for count in CLASSES), key=lambda level: abs(level - initial))
        return near if abs(near - initial) <= self.match_share * near else None

    def _fell(self, loss: Series) -> bool:
        """Whether the loss fell clearly: then weights move, whatever was measured (LBFGS steps inside its update)."""
        if len(loss) < 2 * INITIAL_ROWS:
            return False
        before, now = loss.values[:INITIAL_ROWS], loss.values[-INITIAL_ROWS:]
        return bool(now.max() < before.min() and median(now) < self.fallen_share * median(before))

    def _frozen(self, window: Window) -> Symptom | None:
        """The weights hardly move, all of them, at every reading in view."""
        rate = window.applied("learning_rate")
        cells = applied_cells(window, "tensors", "update_ratio")
        if cells is None or len(cells) < 3 or (len(rate) and rate.values.max() <= 0.0):
            return None
        if not np.nanmedian(cells.values[-1]) < self.update_ratio:  # all of them would take fifty times as long
            return None
        moves = cells.values > 0.0
        frozen_too = bool(moves.any(axis=1).all())  # those that move at all are judged: others may be frozen for now
        moved = np.nanmedian(np.where(moves, cells.values, np.nan) if frozen_too else cells.values, axis=1)
        loss = window.applied("loss")
        if not (moved < self.update_ratio).all() or (not moved.any() and self._fell(loss)):
            return None
        if len(loss) and not loss.values[loss.steps <= cells.steps[-1]].any():
            return None  # that is loss-collapse, or a value function before its first reward
        return Symptom(
            name="no-learning",
            severity="note" if len(rate) and steps_at_work(rate, self.early_rate_share) is None else "warning",
            first_step=known_first_reading(window, cells.steps, 0),
            last_step=int(cells.steps[-1]),
            message=f"the weights hardly move: the median update is {moved[-1]:.2g} of its weight, the largest "
            f"{np.nanmax(cells.values):.2g}",
            signals=("tensors.update_ratio",),
            numbers={"update_ratio": float(moved[-1]), "readings": float(len(cells))},
        )


def _is_coarse(value: float) -> bool:
    """Whether ``value`` is exact in half precision: such losses repeat because they are rounded."""
    bits = int(np.float32(value).view(np.uint32))
    return bits & 0xFFFF == 0 or float(np.float16(value)) == value
