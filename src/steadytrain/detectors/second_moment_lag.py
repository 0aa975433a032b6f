"""Adam's second moment lags behind the gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from steadytrain.core.model import Cells, Severity, Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import Detector, Quantity
from steadytrain.statistics.layer_names import embeddings_among
from steadytrain.statistics.medians import median
from steadytrain.statistics.script_rows import script_rows
from steadytrain.statistics.table_episodes import Episode, applied_cells, episodes, loss_jump

AFTER_ROWS, STAYS_SHARE = 16, 0.5
"""A jump of the loss stays if the median of so many values after it has lost less than this share of the height."""


@final
@dataclass(frozen=True)
class SecondMomentLag(Detector):
    """The gradient is far larger than the second moment that it is divided by.

    Means:
        Adam divides by a running mean of squares that still reflects earlier, smaller gradients, so the update is
        larger than the learning rate by this factor. In CLIP training such a reading came 1 to 8 steps before each loss
        spike (2304.13013). Alone it is a note, and common early in a run, while the gradients of layers that start to
        learn grow. It is a warning if the loss jumps within the next 16 steps and stays high (not the loss of a policy,
        which jumps with each rollout), or above 5 once training is under way (10 before). Embeddings are excluded: rows
        of rare tokens always lag.

    Causes:
        - beta2 too high for this gradient: 0.999 remembers 1,000 steps (2304.13013, 2506.04805)
        - a gradient that suddenly grew: new data, a bad batch, a learning rate at the edge of stability
        - optimizer state that was lost or mixed up on a resume
        - no fault: the first hundreds of steps, when layers begin to learn one after the other

    Next:
        1. Look at the loss of the 16 steps after it. If nothing happened, continue.
        2. Continue from before it with beta2 0.95, or with update clipping (learning rate over max(1, this number)).
        3. Look at which tensors lag: all at once means data or schedule, one layer means its input.
        4. After a resume: check that the optimizer's state was loaded, in the order of the parameters.
    """

    needs: ClassVar[tuple[str, ...]] = ("tensors.gradient_to_second_moment",)
    quantity: ClassVar[Quantity | None] = "update_ratio"
    counts_rising_loss: ClassVar[bool] = True
    spoils_weights: ClassVar[bool] = True

    lag_ratio: float = threshold(2.3, "RMS of gradient over root of the second moment: the bound of 2304.13013")
    strong_ratio: float = threshold(
        5.0,
        "strong enough for a warning without a jump of the loss. Healthy small GPTs at beta2 0.999 "
        "reached 5.6 in their first 100 steps",
    )
    strong_rows: int = threshold(2, "tensors that must be that strong: a bias of a few elements reaches it by chance")
    early_ratio: float = threshold(10.0, "the same in the first steps of a run: twice what healthy runs showed there")
    told_readings: int = threshold(3, "readings in a row from which a weaker lag is reported")
    told_steps: int = threshold(32, "and steps that these readings span: fewer are the effect of one batch")
    start_steps: int = threshold(
        10,
        "first steps that do not count: RMSprop starts its moment at 0 without correction, so "
        "the ratio is 10 in step 1",
    )
    warm_up_steps: int = threshold(500, "up to this step of the run the bound is `early_ratio`")
    jump_steps: int = threshold(16, "the loss must jump this soon after: twice the lead of 1 to 8 steps")
    jump_scales: float = threshold(8.0, "robust standard deviations that make a jump of the loss")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        cells = applied_cells(window, "tensors", "gradient_to_second_moment")
        if cells is None:
            return ()
        beyond = cells.values >= self.lag_ratio
        beyond[cells.steps <= self.start_steps] = False
        if not beyond.any():
            return ()
        beyond &= ~embeddings_among(cells.rows)
        found = [self._symptom(window, cells, episode) for episode in episodes(window, cells, beyond)]
        return tuple(symptom for symptom in found if symptom is not None)

    def _stays(self, window: Window, episode: Episode, jump: float) -> bool:
        """Whether the loss jumped, and half of the values after that are still far above those before."""
        if not self.jump_scales < jump < np.inf:
            return jump > self.jump_scales
        losses = window.applied("loss")
        level = median(losses.between(0, episode.seen_step - 1).values[-AFTER_ROWS:])
        last_step = episode.last_step + self.jump_steps
        peak = float(losses.between(episode.seen_step, last_step).values.max())
        after = losses.values[losses.steps > last_step][:AFTER_ROWS]
        return len(after) == AFTER_ROWS and median(after) > level + STAYS_SHARE * (peak - level)

    def _symptom(self, window: Window, cells: Cells, episode: Episode) -> Symptom | None:
        values = cells.values[episode.first : episode.last + 1][:, episode.positions]
        late = episode.first_step > self.warm_up_steps
        bound = self.strong_ratio if late else self.early_ratio
        strong = int((values >= bound).any(axis=0).sum()) >= self.strong_rows
        jump = loss_jump(window, episode.seen_step, episode.last_step + self.jump_steps)
        # The loss of a policy jumps with each rollout, and measures nothing that could be lost.
        stays = self._stays(window, episode, jump) and (np.isinf(jump) or not script_rows(window, "policy-code"))
        lasts = len(values) >= self.told_readings and episode.last_step - episode.first_step >= self.told_steps
        severity: Severity = "note"
        if strong or stays:
            severity = "warning"
        elif jump <= self.jump_scales and not lasts:
            return None
        beside = f", and the loss jumped by {jump:.3g} robust standard deviations" if jump > self.jump_scales else ""
        if np.isinf(jump):
            beside = ", and the loss was not finite after it"
        return Symptom(
            name="second-moment-lag",
            severity=severity,
            first_step=episode.first_step,
            last_step=episode.last_step,
            message=f"gradients of {episode.who('tensors')} stood at up to {np.nanmax(values):.3g} times the root of "
            f"their second moment {episode.when()}{beside}",
            signals=("tensors.gradient_to_second_moment",),
            tensors=episode.names,
            numbers={
                "ratio": float(np.nanmax(values)),
                "tensors": float(len(episode.rows)),
                "loss_jump_scales": jump,
            },
        )
