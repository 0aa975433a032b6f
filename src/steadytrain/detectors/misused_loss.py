"""The loss function is given what it does not take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows

SAID = {
    "softmax-twice": "gets the output of softmax and takes softmax of it again",
    "sigmoid-before-softmax": "gets the output of sigmoid and takes softmax of it",
    "sigmoid-twice": "gets probabilities (sigmoid or softmax) and takes the sigmoid of them again",
    "probabilities-as-logarithms": "expects log-probabilities and gets probabilities",
    "scores-as-logarithms": "expects log-probabilities and gets the scores of a layer, without a bound below",
    "softmax-dimension": "takes softmax over another dimension than that of the classes",
    "unscaled-cosines": "takes the softmax of cosines without a temperature: scores between -1 and 1 cannot tell the "
    "right choice from the others, and the loss stays near that of a guess",
    "cut-scores": "gets the output of a ReLU, so no score is below 0: where all are 0, no gradient passes",
    "many-hot": "is a softmax cross-entropy, and its targets have several ones in a row, or none: the "
    "classes compete, and no prediction fits",
    "ignored-class": "leaves out one of its two classes: `ignore_index` is one of them, so that the model only learns "
    "to answer with the other",
    "batch-total": "adds a sum over the whole batch to the value of each row, so that it counts as many times as the "
    "batch has rows",
    "softmax-of-one": "is about the softmax of a single unit, which is always 1",
}
"""Measures of the table ``script``, and what the loss does there."""


@final
@dataclass(frozen=True)
class MisusedLoss(ScriptRule):
    """The loss function gets probabilities for scores, or the other way round.

    Means:
        The graph of the loss shows which operation made its input. Softmax before `cross_entropy`, or sigmoid before
        `binary_cross_entropy_with_logits`, squashes twice: gradients shrink, and the loss stays above a floor that no
        prediction can pass. `nll_loss` without `log_softmax` has no bound below, and `kl_div` takes logarithms as
        well. A softmax over one unit is always 1 and learns nothing. A softmax over another dimension than the one
        that `nll_loss` reads as classes makes the rows (or places) of a batch compete with each other. A ReLU on the
        scores keeps them from falling below 0 and cuts the gradient of those that are there. Cosines without
        a temperature are scores between -1 and 1: with many choices the loss stays near that of a guess. Targets with
        several ones in a row belong to a binary cross-entropy for each class. An `ignore_index` that is one of two
        classes leaves a constant to learn. A sum over all rows (a
        log-determinant, a divergence) that is added to the value of each row counts as often as there are rows. None of
        these raises an error. Compiled losses cannot be looked into.

    Causes:
        - a model that ends in softmax or sigmoid for predictions, trained with a loss that takes scores
        - `nll_loss` taken for `cross_entropy`
        - a single output unit for two classes
        - a ReLU after the last layer, as after all others
        - several labels for each row in `cross_entropy`
        - cosine similarities of a contrastive loss that are not divided by a temperature
        - `log_softmax(dim=0)`, `softmax()` without `dim`, or `dim=1` for scores [batch, places, classes]
        - `log_det.sum()` where `log_det.sum(dim=1)` is meant, added to log-likelihoods of single rows
        - one loss object for two tasks: `ignore_index=0` skips padding in one and a class in the other

    Next:
        1. Give `cross_entropy` and `binary_cross_entropy_with_logits` the output of the last layer as it is, without an
           activation.
        2. Use softmax and sigmoid only where probabilities are read.
        3. One unit for two classes: `binary_cross_entropy_with_logits` without softmax.
        4. Divide cosines by a temperature (0.05 to 0.1), or learn a scale.
        5. Several labels a row: `binary_cross_entropy_with_logits`, a sigmoid for each class.
        6. A criterion of its own, without `ignore_index`, for labels in which no place is padding.
        7. Sum over the values of a row, `.sum(dim=1)`, before terms are added.
        8. Give every softmax its `dim`: -1 where the classes come last.
    """

    states_fact: ClassVar[bool] = True
    looks_min: int = threshold(2, "looks that find it: the loss is made in the same way each time")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        found = []
        for measure, said in SAID.items():
            for row in script_rows(window, measure):
                if len(row.steps) >= self.looks_min:
                    found.append((int(row.steps[0]), measure, said, row))
        return tuple(
            Symptom(
                name="misused-loss",
                severity="warning",
                first_step=first,
                last_step=int(window.steps[-1]),
                message=f"the loss of {row.place} {said}",
                signals=("script.value",),
                numbers={measure: row.last},
            )
            for first, measure, said, row in sorted(found, key=lambda one: one[0])[:1]
        )
