"""Updates that would destroy what was learned: a loss and a gradient norm far beyond all of the last steps.

Such an update is skipped, which is exact and costs a batch. A row of them means that the weights have left their
course, or that the data have: a roll-back shows which. If it is the data, updates are held back while that lasts.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from steadytrain.capture.step.gate import Measurement
from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.core.model import Series
from steadytrain.guard.recurring import TRIAL_RATIO, Recurring
from steadytrain.guard.repeats import Repeats

WINDOW, STEPS_MIN, STEPS_FULL = 128, 8, 32
"""With fewer than ``STEPS_FULL`` steps, what is extreme has to be further away, by the square of what is missing."""

NORM_RATIO = 100.0
"""How many times the largest gradient norm of the window. Heavy-tailed losses reach a few times."""

LOSS_RATIO = 10.0
"""How many times as far above the median loss of the window as any loss of it."""

ALONE = ((50.0, 2500.0), (10.0, 1e4))
"""A smaller norm is extreme too where the loss is that far out: with a squared error it grows with the root of it, and
with normalised layers even less."""

FAR_RATIO, FAR_SHARE_MAX = 1e4, 0.25
"""Steps of which both the norm and the loss are so many times as far out as those of the others say nothing of what is
usual, if there are at most so many: an extreme step that recurs is extreme again."""

HELD_BACK_STEPS = 16
"""So many updates are skipped in a row where the data are known to be extreme; then the run learns from them."""

FIRST_STEPS, HINDSIGHT_STEPS = 8, 32
"""So many first steps are judged by those up to the second number, since nothing came before them."""

LEARNED_DOUBLING = 8
"""Steps after which the norm at which their updates are clipped has doubled."""

HELD_BACK = (
    "the state from before has the same loss on the data that follow: the data are extreme, and their updates are "
    f"skipped, at most {HELD_BACK_STEPS} in a row"
)
LEARNED = (
    f"the data are extreme for {HELD_BACK_STEPS} steps: from here on the run learns from them, with gradients clipped "
    f"at what was usual, a level that doubles every {LEARNED_DOUBLING} steps; finite values are only recorded"
)


class Extremes:
    """Judges the step at the gate of one stream, and counts those in a row.

    Args:
        skips_in_a_row: how many are skipped before a roll-back shows what is wrong.
    """

    def __init__(self, skips_in_a_row: int) -> None:
        self._skips_in_a_row = skips_in_a_row
        self.loss = math.nan
        """The first loss of the row."""

        self.first = 0
        """The first step of the row."""

        self.in_a_row = 0
        self.is_known = False
        """Whether a roll-back has shown that the data of the row are extreme, and not the state."""

        self.recurring, self.repeats = Recurring(), Repeats()
        self.norm = self.norm_on_trial = math.inf
        """The gradient norm of the newest extreme step, and what it is clipped at if its update is made on trial."""

        self._last = -1
        self._known = np.zeros((2, 0))

    def remember(self, stream: Stream) -> None:
        """The norms and losses so far are of the data, and say what is usual when the steps count no more."""
        window = stream.history.window()
        norms, losses = window.applied("gradient_norm").values, window.applied("loss").values
        if len(norms) == len(losses):
            self._known = np.stack([norms, losses])[:, -STEPS_FULL:]

    def judged(self, *, known: bool) -> None:
        """A roll-back has shown whether the data are extreme. If so, those that follow are counted anew."""
        self.is_known = known
        if known:
            self.in_a_row = 0

    @property
    def in_a_row_max(self) -> int:
        """How many may be skipped in a row. Before the data are known to be extreme one more than the budget says: a
        roll-back follows it, so its update must not be made either."""
        return HELD_BACK_STEPS if self.is_known else self._skips_in_a_row + 1

    @property
    def are_many(self) -> bool:
        """Whether there are more in a row than single bad batches explain."""
        return not self.is_known and self.in_a_row > self._skips_in_a_row

    @property
    def go_on(self) -> bool:
        """Whether extreme data have lasted for longer than their updates are skipped."""
        return self.is_known and self.in_a_row > HELD_BACK_STEPS

    def why(self, stream: Stream, measured: Measurement) -> str | None:
        """Why the step at the gate is extreme; None if it is not. Call once a step, with finite values."""
        scalars, step = measured.record.scalars, measured.record.step
        loss, norm = scalars.get("loss"), scalars.get("gradient_norm")
        if loss is None or norm is None:
            return None
        window = stream.history.window()
        norms = np.append(self._known[0], self._usual(window.applied("gradient_norm")))
        losses = np.append(self._known[1], self._usual(window.applied("loss")))
        usual = norms[-WINDOW:][~far_out(norms[-WINDOW:], losses[-WINDOW:])]
        largest = float(usual.max(initial=0.0))
        self.repeats.look(stream, step, loss)
        if not self.recurring.is_alike(loss, norm, largest) and not is_extreme(norms, norm, losses, loss):
            self.is_known = False
            return None
        if self._last != step - 1:
            self.first, self.loss, self.in_a_row = step, loss, 0
        self._last = step
        self.in_a_row += 1
        self.norm, self.norm_on_trial = norm, min(norm, TRIAL_RATIO * largest)
        return (
            f"the gradient norm of {norm:.4g} is {norm / largest:.3g} times the largest of the {len(usual)} "
            f"steps before, and the loss is {loss:.4g}"
        )

    def lets_through(self, stream: Stream, measured: Measurement) -> bool:
        """Whether the update of the extreme step at the gate is made, with its gradients clipped."""
        return not self.is_known and self.in_a_row == 1 and self.recurring.lets_through(stream, measured)

    def _usual(self, series: Series) -> NDArray[np.float64]:
        """Its values without those of steps on trial."""
        return series.values[~np.isin(series.steps, self.recurring.on_trial)]


def is_extreme(norms: NDArray[np.float64], norm: float, losses: NDArray[np.float64], loss: float) -> bool:
    """Whether ``norm`` and ``loss`` are far beyond those of the last steps.

    ``norms`` and ``losses`` have shape ``(steps,)``, oldest first. With fewer than ``STEPS_MIN`` the answer is no.
    """
    steps = min(len(norms), len(losses))
    if steps < STEPS_MIN:
        return False
    further = max(1.0, STEPS_FULL / steps) ** 2
    near = ~far_out(norms[-WINDOW:], losses[-WINDOW:])
    norms, losses = norms[-WINDOW:][near], losses[-WINDOW:][near]
    middle = float(np.median(losses))
    reach = float(np.abs(losses - middle).max())
    largest = float(norms.max())
    ratios = ((NORM_RATIO, LOSS_RATIO), *(ALONE if steps >= STEPS_FULL else ()))
    return largest > 0 and any(
        norm > further * norm_ratio * largest and loss - middle > further * loss_ratio * reach
        for norm_ratio, loss_ratio in ratios
    )


def far_out(norms: NDArray[np.float64], losses: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which steps are a world apart from the others. All have shape ``(steps,)``; none are if they are too many."""
    none = np.zeros(len(norms), bool)
    if len(norms) != len(losses) or not len(norms):
        return none
    far = norms > FAR_RATIO * float(np.quantile(norms, 1 - FAR_SHARE_MAX))
    if not far.any() or far.mean() > FAR_SHARE_MAX:
        return none
    middle = float(np.median(losses[~far]))
    reach = float(np.abs(losses[~far] - middle).max())
    return far if (losses[far] - middle > FAR_RATIO * reach).all() else none


def extreme_at_first(norms: NDArray[np.float64], losses: NDArray[np.float64]) -> int | None:
    """The first row of the ``FIRST_STEPS`` that is extreme by those that came after them; None if there is none.

    ``norms`` and ``losses`` have shape ``(steps,)``, oldest first, from the first step of the run on.
    """
    later = norms[FIRST_STEPS:], losses[FIRST_STEPS:]
    pairs = zip(norms[:FIRST_STEPS].tolist(), losses[:FIRST_STEPS].tolist(), strict=True)
    return next((row for row, (norm, loss) in enumerate(pairs) if is_extreme(later[0], norm, later[1], loss)), None)
