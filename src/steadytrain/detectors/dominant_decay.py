"""Weight decay moves the weights, and not the loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.common_growth import growths
from steadytrain.statistics.medians import median
from steadytrain.statistics.script_rows import ScriptRow, script_rows

START_ROWS = 8


@final
@dataclass(frozen=True)
class DominantDecay(ScriptRule):
    """Weight decay outweighs the gradient: the weights shrink, whatever the loss says.

    Means:
        Two measures are read every 8 steps up to step 512. With a decay that is taken from the weights (AdamW, SGD),
        rate times decay is the share of each weight that one update removes; of SGD with momentum, in the long run.
        With one that is added to the gradient and divided by its size (Adam, RMSprop), the norm of the decay is
        compared with that of the gradient. It is a warning if one of them is large while the norms of most weights
        fall.

    Causes:
        - a decay in the units of another optimizer or framework: 0.1 inside Adam's gradient is no AdamW
        - a decay that was multiplied by the learning rate elsewhere, or that a sweep or a schedule raised
        - a learning rate that rose, and a decay that is decoupled from the gradient but not from the rate

    Next:
        1. Print rate times decay: 1e-5 to 1e-3 is usual.
        2. With Adam, use AdamW, or a decay of 1e-4 and less.
        3. Train without decay for 200 steps and compare.
    """

    needs: ClassVar[tuple[str, ...]] = ("script.value", "tensors.weight_norm", "loss")
    spoils_weights: ClassVar[bool] = True

    rate_min: float = threshold(0.02, "share of each weight that an update removes. Usual: 1e-5 to 1e-3. Chosen")
    pull_min: float = threshold(
        1.0, "norm of the decay over that of the gradient: at an optimum with decay they are equal, and before it less"
    )
    pull_readings: int = threshold(3, "readings in a row, 8 steps apart, with such a pull")
    shrinks_min: float = threshold(0.003, "share of its norm that the median tensor loses in a step meanwhile. Chosen")
    loss_share: float = threshold(
        0.3, "newest loss over the first ones, below which a small gradient is that of a task that is learned"
    )

    def check(self, window: Window) -> tuple[Symptom, ...]:
        return (*self._by_rate(window), *self._by_pull(window))[:1]

    def _by_rate(self, window: Window) -> tuple[Symptom, ...]:
        for row in script_rows(window, "decay-rate"):
            shrinks = self._shrinks(window, row)
            if row.last >= self.rate_min and shrinks > max(self.shrinks_min, 0.25 * self.rate_min):
                text = f"an update of {row.place} removes {row.last:.2g} of each weight by its decay, and the median "
                return (self._symptom(window, row, text, shrinks),)
        return ()

    def _by_pull(self, window: Window) -> tuple[Symptom, ...]:
        for row in script_rows(window, "decay-pull"):
            newest = row.values[-self.pull_readings :]
            shrinks = self._shrinks(window, row)
            strong = len(newest) == self.pull_readings and bool((newest >= self.pull_min).all())
            if strong and shrinks > self.shrinks_min and not self._learned(window):
                text = f"the weight decay inside of {row.place} is {row.last:.3g} times its gradient, and the median "
                return (self._symptom(window, row, text, shrinks),)
        return ()

    def _symptom(self, window: Window, row: ScriptRow, text: str, shrinks: float) -> Symptom:
        text += f"weight tensor loses {shrinks:.2g} of its norm in a step"
        return self.warning(window, row, text, value=row.last, shrinks=shrinks)

    def _shrinks(self, window: Window, row: ScriptRow) -> float:
        """The largest share that the median tensor lost in a step since the decay was seen."""
        found = growths(window, tensors_min=2)
        return max((-one.median for one in found if one.until > row.steps[0]), default=0.0)

    def _learned(self, window: Window) -> bool:
        loss = window.applied("loss")
        if len(loss) < 2 * START_ROWS:
            return True
        first, newest = median(loss.values[:START_ROWS]), median(loss.values[-START_ROWS:])
        return first > 0.0 and newest < self.loss_share * first
