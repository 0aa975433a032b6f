"""Training loss and evaluation loss disagree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray

from steadytrain.core.metric_names import OF_PART, OF_SCALE, TRAINING_LEVEL, is_loss, is_of_script, qualifier
from steadytrain.core.model import FloatArray, Series, Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import Detector
from steadytrain.statistics.medians import median
from steadytrain.statistics.reference import MAD_TO_SIGMA
from steadytrain.statistics.table_episodes import stretches

AROUND_ROWS = 16
"""Logged steps on each side of an evaluation whose median is the training loss there."""


@final
@dataclass(frozen=True)
class ValidationGap(Detector):
    """The evaluation is far better than training, gets worse while training gets better, or never gets better.

    Means:
        An evaluation loss at half of the training loss, three times in a row, is too good: dropout and augmentation
        seldom explain such a gap. The evaluation data was trained on, or the evaluation averages differently. In the
        opposite case training falls while evaluation rises: the model begins to memorize its data. That is a note; many
        runs stop there on purpose. An `evaluation-loss` is what a watch reads of the script's own evaluations. It is
        judged when it has risen for long, or has risen from the first value on, or never got below the level at which
        training began while the training loss was halved: a warning. Its level is not compared with a training loss of
        another kind (label smoothing, a penalty, a sum).

    Causes:
        - evaluation examples, or near copies of them, in the training data; a split after augmentation
        - an evaluation that averages over padding, or over other tokens than training does
        - labels visible to the model in evaluation only: a mask that is set in training mode
        - strong dropout, label smoothing or mixed samples: then the gap is by design
        - overfitting: too many passes over too little data
        - an evaluation loss that never falls: running statistics of batch norm that lag, categories or scales that each
          split computes anew, a column that knows the target in training only

    Next:
        1. Compute the training loss of one batch in evaluation mode, with the evaluation's own code.
        2. Look for evaluation examples in the training set, by hash and by long shared substrings.
        3. Shuffle the evaluation inputs against their labels: the loss must rise to that of a guess.
    """

    needs: ClassVar[tuple[str, ...]] = ("metrics",)

    gap_ratio: float = threshold(0.5, "evaluation loss over training loss at or below which the gap is not chance")
    gap_nats: float = threshold(0.05, "and the gap in nats: two losses near zero may differ by any factor")
    evaluations_min: int = threshold(3, "evaluations in a row: one may be an easy sample, three are unlikely to be")
    rise_share: float = threshold(0.02, "rise of the evaluation loss above its minimum that is a note")

    own_min: int = threshold(5, "evaluations of the script itself: fewer do not show a course")
    own_rise_min: int = threshold(6, "evaluations after the lowest, and half of all: a rise for long")
    own_rise_share: float = threshold(0.15, "rise above the lowest, and half of what was gained: a rise for long")
    first_rise_share: float = threshold(0.1, "rise above the first value, if the loss never got 2% below that")
    guess_share: float = threshold(0.9, "share of the first training loss and of its first value that it stays above")
    halved_share: float = threshold(0.5, "share of its own level that the training loss got below meanwhile")
    lost_share: float = threshold(0.3, "and the same where the evaluation never got below the first training loss")
    low_share: float = threshold(0.1, "share of the first training loss below which a rise is of no account")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        train = window.applied("loss")
        found: list[Symptom] = []
        for name, series in sorted(window.metrics.items()):
            if not is_loss(name) or qualifier(name) or not len(train):
                continue
            if is_of_script(name):
                if window.facts.get("optimizers_in_turn", 1.0) > 1:
                    continue  # each loss of a GAN rises as the other model gets better
                found += self._of_script(name, series, window.metrics.get(TRAINING_LEVEL))
                continue
            finite = np.isfinite(series.values)
            evaluated = Series(series.steps[finite], series.values[finite])
            if len(evaluated) < self.evaluations_min:
                continue
            lowest, typical = _around(train, evaluated)
            found += self._too_good(name, evaluated, lowest)
            found += self._overfitting(name, evaluated, typical)
        return tuple(sorted(found, key=lambda symptom: symptom.first_step))

    def _too_good(self, name: str, evaluated: Series, lowest: FloatArray) -> list[Symptom]:
        good = (evaluated.values <= self.gap_ratio * lowest) & (evaluated.values < lowest - self.gap_nats)
        return [
            Symptom(
                name="validation-gap",
                severity="warning",
                first_step=int(evaluated.steps[start]),
                last_step=int(evaluated.steps[stop - 1]),
                message=f"{name} is {evaluated.values[stop - 1]:.4g} at step {evaluated.steps[stop - 1]} while the "
                f"training loss stays above {lowest[stop - 1]:.4g}: too good since step {evaluated.steps[start]}",
                signals=("loss", name),
                numbers={
                    "evaluation_loss": float(evaluated.values[stop - 1]),
                    "training_loss": float(lowest[stop - 1]),
                    "evaluations": float(stop - start),
                },
            )
            for start, stop in stretches(_known(good, lowest))
            if stop - start >= self.evaluations_min
        ]

    def _overfitting(self, name: str, evaluated: Series, typical: FloatArray) -> list[Symptom]:
        """The evaluation rose at each of the last evaluations, and training fell meanwhile."""
        best = int(np.argmin(evaluated.values))
        after = evaluated.values[best:]
        if len(after) <= self.evaluations_min or best == 0:
            return []
        noise = MAD_TO_SIGMA * median(np.abs(np.diff(evaluated.values))) / 2**0.5
        risen = median(after[-self.evaluations_min :]) - float(after[0])
        if risen < max(self.rise_share * abs(float(after[0])), noise) or not typical[-1] < typical[best]:
            return []
        return [
            Symptom(
                name="validation-gap",
                severity="note",
                first_step=int(evaluated.steps[best]),
                last_step=int(evaluated.steps[-1]),
                message=f"{name} rises since step {evaluated.steps[best]}, from {after[0]:.4g} to {after[-1]:.4g}, "
                "while the training loss falls: overfitting",
                signals=("loss", name),
                numbers={"evaluation_loss": float(after[-1]), "lowest": float(after[0])},
            )
        ]

    def _of_script(self, name: str, series: Series, training: Series | None) -> list[Symptom]:
        """A loss that a watch has read itself: judged by its own course, and by level if the training loss is alike."""
        finite = np.isfinite(series.values)
        steps, values = series.steps[finite], series.values[finite]
        if training is None or OF_PART in name or len(values) < self.own_min or len(training) < 2:
            return []
        best, last = int(np.argmin(values)), median(values[-self.evaluations_min :])
        start, now = float(training.values[0]), float(training.values[-1])
        if values.min() == values.max():
            return []  # a baseline: the loss of a model in training changes
        if training.steps[0] > 1 or start <= 0.0 or last < self.low_share * start:
            return []
        told, since = "", int(steps[best])
        updated = values[steps > 0]
        stays = updated.min() >= self.guess_share * start and last >= self.guess_share * updated[0]
        if OF_SCALE not in name and now <= self.lost_share * start and stays:
            told, since = f"never got below the {start:.4g} at which training began", int(steps[steps > 0][0])
        elif values[best] >= (1.0 - self.rise_share) * values[0] and (
            last >= (1.0 + self.first_rise_share) * values[0] and now <= self.halved_share * _at(training, steps[0])
        ):
            told, since = f"rises since its first value, {values[0]:.4g}", int(steps[0])
        elif self._rises_for_long(values, best, last) and now <= self.halved_share * _at(training, steps[best]):
            told = f"rises since step {since}, from {values[best]:.4g}, for {len(values) - 1 - best} evaluations"
        if not told:
            return []
        scale = "; the two are not of one scale" if OF_SCALE in name else ""
        return [
            Symptom(
                name="validation-gap",
                severity="warning",
                first_step=since,
                last_step=int(steps[-1]),
                message=f"{name} {told}; it is {values[-1]:.4g} at step {steps[-1]}, where the training loss is "
                f"{now:.4g}{scale}",
                signals=("loss", name),
                numbers={"evaluation_loss": float(values[-1]), "lowest": float(values[best]), "training_loss": now},
            )
        ]

    def _rises_for_long(self, values: FloatArray, best: int, last: float) -> bool:
        """Most evaluations came after the lowest, and most of the gain is lost."""
        after = len(values) - 1 - best
        noise = MAD_TO_SIGMA * median(np.abs(np.diff(values) - median(np.diff(values)))) / 2**0.5
        least = max(self.own_rise_share * values[best], (values[0] - values[best]) / 2, 4 * noise)
        return after >= max(self.own_rise_min, len(values) / 2) and last - values[best] >= least


def _at(training: Series, step: int) -> float:
    """The level of the training loss at an evaluation."""
    return float(training.values[max(0, int(np.searchsorted(training.steps, step, side="right")) - 1)])


def _known(good: NDArray[np.bool_], lowest: FloatArray) -> NDArray[np.bool_]:
    return good & np.isfinite(lowest)


def _around(train: Series, evaluated: Series) -> tuple[FloatArray, FloatArray]:
    """The training loss at each evaluation: the lower of before and after it, and the median of both."""
    lowest, typical = np.full(len(evaluated), np.nan), np.full(len(evaluated), np.nan)
    for position, row in enumerate(np.searchsorted(train.steps, evaluated.steps, side="right").tolist()):
        before, after = train.values[max(0, row - AROUND_ROWS) : row], train.values[row : row + AROUND_ROWS]
        if len(before) and len(after):  # at the end of a log only one side is known, and it may lag a steep fall
            lowest[position] = min(median(before), median(after))
        both = np.concatenate([before, after])
        if len(both):
            typical[position] = median(both)
    return lowest, typical
