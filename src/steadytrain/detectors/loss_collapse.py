"""The loss has become a constant, or nothing at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from steadytrain.core.model import FloatArray, Series, Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import Detector
from steadytrain.statistics.benign_changes import has_moving_targets
from steadytrain.statistics.medians import median
from steadytrain.statistics.rolling_baseline import holds_start, known_first_step, stride_of
from steadytrain.statistics.table_episodes import stretches

INITIAL_ROWS = 5
GRADIENT_ROWS = 64
APPROACH_ROWS = 8
APPROACH_SHARE = 0.01
EVEN = "; it was below zero before, as that of a policy, and is zero where all rewards of a batch are equal"
MARGIN = "; it was zero in some steps before, as a loss with a margin is where all rows keep it"
WAITS = "; it compares values with targets of the model's own, as before the first reward"
GOES_ON = "; the gradient goes on as before"
INDEPENDENT = "; the gradient goes on, so its value does not depend on what is trained"
CONVERGED = "; it came down to it in ever smaller steps, as an optimizer that converges on the same data does"


@final
@dataclass(frozen=True)
class LossCollapse(Detector):
    """The loss takes the same value at every step, or falls to nearly zero faster than language can be learned.

    Means:
        No two batches have exactly the same loss: a loss that repeats to six digits no longer depends on the batch.
        Text has an entropy: a loss below 0.05 nats a token in the first pass means that the model sees the answer. A
        loss of exactly 0.0 with a gradient norm of NaN is reported as nonfinite-loss. If the gradient goes on as before
        it is a note: the logged loss is not the one that is trained on (policy gradients). In a watched run it is the
        one, and only a constant 0 is a note (a value minus itself, detached). It is a note too if the loss
        came down to its constant in ever smaller steps: an optimizer has converged on one batch; or if it is 0 after
        values below 0: a policy whose rewards are all equal.

    Causes:
        - every unit dead or saturated: the output is a constant
        - all labels masked, or one label everywhere; an empty reduction
        - a logged number that is no longer updated
        - a model that is compared with itself: a reference or a target that shares its parameters
        - labels that are not shifted, or a mask that lets a token see itself: the model copies (label-misalignment,
          causal-leak)
        - the training data holds the answers; a data set so small that it is repeated within the first steps

    Next:
        1. Print a batch: inputs, labels, how many labels count.
        2. Check the mask: the gradient of a logit with respect to later tokens must be exactly zero.
        3. Look for the first step with a gradient norm of zero, or with dead units.
    """

    needs: ClassVar[tuple[str, ...]] = ("loss",)
    spoils_weights: ClassVar[bool] = True

    same_steps: int = threshold(
        32, "logged steps in a row with the same loss; two batches never have the same loss by chance"
    )
    same_share: float = threshold(1e-6, "relative difference below which two losses are the same: float32 has 6e-8")
    distinct_min: int = threshold(
        8,
        "different values that the loss must have had before, so that one logged with two digits is not "
        "called constant",
    )
    copied_nats: float = threshold(
        0.05, "a token of text costs at least about 0.5 nats; below a tenth of that the model copies it"
    )
    copied_steps: int = threshold(
        2000, "up to this step, or in the first epoch if epochs are logged; later the model may have memorized the text"
    )
    vocabulary_min: int = threshold(256, "number of classes from which a token task counts as text: bytes")
    zeros_min: int = threshold(
        8, "steps with a loss of exactly zero, and others between them, before such a row: a loss with a margin is so"
    )
    gradient_share: float = threshold(1e-3, "a gradient norm below this share of the one before has died with the loss")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        loss = window.applied("loss")
        if len(loss) < self.same_steps:
            return ()
        found = self._constant(window, loss)
        copied = self._copied(window, loss)
        return tuple(sorted([*found, *copied], key=lambda symptom: symptom.first_step))

    def _constant(self, window: Window, loss: Series) -> list[Symptom]:
        same = np.abs(np.diff(loss.values)) <= self.same_share * np.abs(loss.values[1:])
        if not same.any():
            return []
        found = []
        for start, stop in stretches(same):
            if stop - start + 1 < self.same_steps:
                continue
            before = loss.values[max(0, start - 4 * self.same_steps) : start]
            if start > 0 and len(np.unique(before)) < min(self.distinct_min, len(before)):
                continue
            first_step = known_first_step(
                loss.steps,
                start,
                first_seen=int(window.steps[0]),
                stride=stride_of(window.steps),
                last_row=stop,
            )
            last_step = int(loss.steps[stop])
            if self._hidden_nan(window, first_step, last_step):
                continue
            trained = self._gradient_goes_on(window, int(loss.steps[start]), last_step)
            told = trained and bool(loss.values[start]) and "script" in window.tables
            waits = start == 0 and not loss.values[0] and has_moving_targets(window)
            converged = _reached_slowly(loss.values, start)
            margin = not loss.values[start] and int((loss.values[:start] == 0.0).sum()) >= self.zeros_min
            even = not loss.values[start] and bool((before < 0.0).any())
            reasons = (
                (waits, WAITS),
                (margin, MARGIN),
                (even, EVEN),
                (told, INDEPENDENT),
                (trained, GOES_ON),
                (converged, CONVERGED),
            )
            found.append(
                Symptom(
                    name="loss-collapse",
                    severity="note" if (trained and not told) or converged or waits or margin or even else "warning",
                    first_step=first_step,
                    last_step=last_step,
                    message=f"the loss is {loss.values[start]:.6g} at each of {stop - start + 1} steps from "
                    f"{first_step} to {last_step}" + next((why for holds, why in reasons if holds), ""),
                    signals=("loss",),
                    numbers={"loss": float(loss.values[start]), "steps": float(stop - start + 1)},
                )
            )
        return found

    def _hidden_nan(self, window: Window, first_step: int, last_step: int) -> bool:
        norms = window.series("gradient_norm").between(first_step, last_step).values
        return bool(len(norms)) and not np.isfinite(norms).any()

    def _gradient_goes_on(self, window: Window, first_step: int, last_step: int) -> bool:
        norms = window.applied("gradient_norm")
        during = norms.between(first_step, last_step).values
        before = norms.between(0, first_step - 1).values[-GRADIENT_ROWS:]
        if not len(during):
            return False
        usual = median(before) if len(before) else 0.0
        return median(during) > self.gradient_share * usual and median(during) > 0.0

    def _copied(self, window: Window, loss: Series) -> list[Symptom]:
        text = window.facts.get("vocabulary", 0.0) >= self.vocabulary_min
        if not text or not holds_start(window.steps, stride=stride_of(window.steps)):
            return []
        if median(loss.values[:INITIAL_ROWS]) < 1.0:
            return []
        epoch = window.applied("epoch")
        limit = int(epoch.steps[epoch.values < 1.0][-1]) if (epoch.values < 1.0).any() else self.copied_steps
        low = (loss.values < self.copied_nats) & (loss.values != 0.0) & (loss.steps <= limit)
        for start, stop in stretches(low, hole_max=1):
            if stop - start >= self.same_steps:
                return [
                    Symptom(
                        name="loss-collapse",
                        severity="warning",
                        first_step=int(loss.steps[start]),
                        last_step=int(loss.steps[stop - 1]),
                        message=f"the loss is below {self.copied_nats:g} nats from step {loss.steps[start]} on, in the "
                        "first pass over the text: the model sees the answer",
                        signals=("loss",),
                        numbers={
                            "loss": median(loss.values[start:stop]),
                            "steps": float(stop - start),
                        },
                    )
                ]
        return []


def _reached_slowly(values: FloatArray, start: int) -> bool:
    """Whether the loss fell in each of the rows before its constant, the last of them by next to nothing."""
    level, before = float(values[start]), values[max(0, start - APPROACH_ROWS) : start]
    if len(before) < APPROACH_ROWS or not (np.diff(before) < 0.0).all():
        return False
    return bool(level <= before[-1] <= level + APPROACH_SHARE * (float(values[0]) - level))
