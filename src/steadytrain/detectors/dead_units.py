"""Units put out nothing but zeros."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray

from steadytrain.core.model import Cells, FloatArray, Severity, Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import Aim, Detector
from steadytrain.statistics.benign_changes import has_moving_targets
from steadytrain.statistics.bias_names import weight_beside
from steadytrain.statistics.layer_names import embeddings_among, experts_among
from steadytrain.statistics.medians import median
from steadytrain.statistics.rolling_baseline import holds_start, stride_of
from steadytrain.statistics.script_rows import script_rows
from steadytrain.statistics.table_episodes import Episode, applied_cells, episodes, loss_change, loss_jump

APART_STEPS = 8
"""Units are dead from one step to the next and stay so: three readings so far apart are enough."""

APART_SHARE = 0.3
"""A dead unit has a gradient neither of its bias nor of its row of weights: the shares of both are close together."""

AGAIN_READINGS = 2
"""Readings after a stretch without gradients that show that the units live."""

FIRST_ROWS, AFTER_ROWS = 16, 24
"""A first update that is far too large shows in the next losses; these are compared with so many that follow."""


@final
@dataclass(frozen=True)
class DeadUnits(Detector):
    """Units of a layer output zero for every input and get no gradient.

    Means:
        A ReLU whose input is negative for every example has no gradient and cannot recover. Many zeros alone are
        healthy: half of a ReLU's outputs, 97 % in a large transformer (2210.06313), because other inputs activate other
        units. The detector therefore looks for two other signs: a module whose whole output is zero, and parameters
        most of whose elements get no gradient in a batch though they had one before. For a bias that share is the share
        of dead units. It is a note while the loss falls, unless the units died in a jump of the loss; "critical" means
        that the loss rose and most units are dead. Missing gradients of a value function are a note, unless one of its
        first steps blew the loss up: few of its states have an error at a time, and its loss rises with the rewards.
        Those of a script that prunes its weights are a note, too.

    Causes:
        - one update that was far too large (a high learning rate, a bad batch) and pushed biases far below zero
        - an initialisation with biases that are too negative, or weights that are too large for the depth
        - inputs that are not centred: large and all of one sign
        - a branch that is multiplied by zero, or masked, for good

    Next:
        1. Look at the learning rate and the update norms at `first_step`.
        2. Go back before it with a third of the learning rate, warm-up, or clipping. Dead units stay dead.
        3. LeakyReLU or GELU instead of ReLU; a norm before the activation.
        4. If the units were dead from the first step: check the initialisation on one batch, without training.
    """

    needs: ClassVar[tuple[str, ...]] = ("modules.zero_share", "tensors.gradient_zero_share")
    aim: ClassVar[Aim] = "progress"
    hasty: ClassVar[bool] = True

    silent_share: float = threshold(
        0.99, "share of zeros from which a module's output is dead: above the sparsest healthy layers"
    )
    dead_share: float = threshold(
        0.5, "elements of a parameter without a gradient: half of the units (AutoTrainer warns there)"
    )
    critical_share: float = threshold(0.7, "the same for a critical symptom (AutoTrainer's bound for dying ReLU)")
    rise_share: float = threshold(
        0.3,
        "minimum rise of the share: weights of inputs that are always zero (the border of an image) have no gradient "
        "from the start, and half of the biases of a small convolution get none from a batch",
    )
    values_rise_share: float = threshold(0.6, "the same of a value function, most of whose rewards are 0 for long")
    bias_share: float = threshold(
        0.85,
        "a bias above it needs no rise: most of its units were dead from the start. Healthy convolutions of 16 "
        "channels reached 0.75 in a batch",
    )
    sustained_readings: int = threshold(
        3, "readings in a row, 8 steps apart or more: outputs that start at zero soon change"
    )
    loss_scales: float = threshold(
        1.0, "robust standard deviations below its earlier level at which the loss counts as falling"
    )
    jump_scales: float = threshold(
        8.0,
        "robust standard deviations that make a jump of the loss. Units that die in a jump stay "
        "dead while the rest learns, so a falling loss does not excuse them",
    )

    blow_up_ratio: float = threshold(
        100.0, "of the highest of the first losses over the first one and over the median after it. Chosen"
    )

    def check(self, window: Window) -> tuple[Symptom, ...]:
        found = [*self._silent(window), *self._dead(window)]
        found.sort(key=lambda symptom: (symptom.first_step, symptom.signals))
        told: list[Symptom] = []
        for symptom in found:  # a dead layer shows in both tables: one symptom
            if not told or symptom.first_step > told[-1].last_step:
                told.append(symptom)
        return tuple(told)

    def _silent(self, window: Window) -> list[Symptom]:
        """Modules that put out nothing."""
        cells = applied_cells(window, "modules", "zero_share", apart_steps=APART_STEPS)
        if cells is None or not (cells.values >= self.silent_share).any():
            return []
        beyond = cells.values >= self.silent_share
        beyond &= ~experts_among(cells.rows)  # they only answer the tokens they get
        if holds_start(window.steps, stride=stride_of(window.steps)):
            # Made so: a branch that is switched off, a head that starts at zero and waits for its first reward.
            beyond &= ~np.logical_and.accumulate(beyond | np.isnan(cells.values), axis=0)
        found = episodes(window, cells, beyond, readings=self.sustained_readings)
        return [self._symptom(window, cells, episode, "modules.zero_share") for episode in found]

    def _dead(self, window: Window) -> list[Symptom]:
        """Parameters most of which have no gradient any more."""
        cells = applied_cells(window, "tensors", "gradient_zero_share", apart_steps=APART_STEPS)
        if cells is None:
            return []
        beyond = cells.values > self.dead_share
        if not beyond.any():
            return []
        beyond &= ~(embeddings_among(cells.rows) | experts_among(cells.rows))
        beyond &= self._alive_elsewhere(cells)
        lowest = np.nanmin(np.where(np.isnan(cells.values).all(axis=0), 1.0, cells.values), axis=0)
        biases = np.array([row.endswith("bias") for row in cells.rows])
        beyond &= ~_without_effect(cells)
        rise = cells.values - lowest
        if has_moving_targets(window):
            # A value function learns the values of the actions that were taken alone, and of few states at a time.
            beyond &= (rise >= self.values_rise_share) & ~_of_last_layer(cells)
        beyond &= (rise >= self.rise_share) | (biases & (cells.values > self.bias_share))
        found = episodes(window, cells, beyond, readings=self.sustained_readings)
        return [self._symptom(window, cells, episode, "tensors.gradient_zero_share") for episode in found]

    def _alive_elsewhere(self, cells: Cells) -> NDArray[np.bool_]:
        """Readings in which some parameter has a gradient: where none has, the loss is at rest and nothing is dead."""
        lowest: FloatArray = np.nan_to_num(cells.values, nan=1.0).min(axis=1, keepdims=True)
        return lowest < self.dead_share

    def _symptom(self, window: Window, cells: Cells, episode: Episode, signal: str) -> Symptom:
        values = cells.values[episode.first : episode.last + 1][:, episode.positions]
        share = float(np.nanmax(np.nanmedian(values, axis=0)))
        change = loss_change(window, episode.seen_step, episode.last_step)
        before = int(cells.steps[max(0, episode.first - 1)])
        blown_up = self._blown_up(window, episode.first_step)
        jumped = blown_up or loss_jump(window, before, int(cells.steps[episode.first])) > self.jump_scales
        severity: Severity = "note" if change < -self.loss_scales and not jumped else "warning"
        silent = signal.startswith("modules")
        if change > self.loss_scales and share > self.critical_share:
            severity = "critical"
        if not silent and _live_again(cells, episode, self.dead_share):
            severity = "note"  # units that are dead stay so: other data did not use them for a while
        if not silent and has_moving_targets(window) and not blown_up:
            severity = "note"  # few states have an error at a time, and the loss rises with the rewards
        if not silent and script_rows(window, "pruning-code"):
            severity = "note"  # the script masks the gradients of what it has pruned
        return Symptom(
            name="dead-units",
            severity=severity,
            first_step=episode.first_step,
            last_step=episode.last_step,
            message=f"{episode.who('modules' if silent else 'parameters')} "
            f"{'put out nothing but zeros' if silent else f'had no gradient in {share:.0%} of the elements'} "
            f"{episode.when()}",
            signals=(signal,),
            tensors=episode.names,
            numbers={"share": share, "rows": float(len(episode.rows)), "loss_change_scales": change},
        )

    def _blown_up(self, window: Window, step: int) -> bool:
        """Whether the units died within the first steps of the run, after one that blew the loss up."""
        loss = window.applied("loss")
        first = loss.values[: np.searchsorted(loss.steps, step)]
        if not 2 <= len(first) <= FIRST_ROWS or not holds_start(window.steps, stride=stride_of(window.steps)):
            return False
        after = loss.values[len(first) : len(first) + AFTER_ROWS]
        usual = max(abs(float(first[0])), abs(median(after)) if len(after) else np.inf)
        return bool(np.isfinite(first).all()) and float(first.max()) > self.blow_up_ratio * usual


def _live_again(cells: Cells, episode: Episode, share: float) -> bool:
    """Whether all of these parameters had gradients again in the readings after the episode."""
    after = cells.values[episode.last + 1 :][:, episode.positions]
    return len(after) >= AGAIN_READINGS and bool((np.nan_to_num(after[:AGAIN_READINGS], nan=1.0) <= share).all())


def _of_last_layer(cells: Cells) -> NDArray[np.bool_]:
    last = cells.rows[-1].rpartition(".")[0]
    return np.array([row.rpartition(".")[0] == last for row in cells.rows])


def _without_effect(cells: Cells) -> NDArray[np.bool_]:
    """Where a bias and its weights differ, so that the units live.

    A bias without a gradient whose weights have one does not change the loss (the last one of a critic, whose loss is a
    difference of means). Weights without one whose bias has it get inputs of zero (symbols that no longer occur).
    """
    places = {row: place for place, row in enumerate(cells.rows)}
    found = np.zeros(cells.values.shape, dtype=bool)
    for bias, place in places.items():
        weight = weight_beside(bias, places)
        if weight is not None:
            of_weight = places[weight]
            apart = cells.values[:, of_weight] - cells.values[:, place]
            found[:, place] |= apart < -APART_SHARE
            found[:, of_weight] |= apart > APART_SHARE
    return found
