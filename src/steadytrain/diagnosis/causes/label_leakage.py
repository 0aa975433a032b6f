"""The answer is among the inputs, or held-out rows are known to the training."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, FAIR, HINT, STRONG, Cause, Intervention, Signature
from steadytrain.diagnosis.interventions import CLEAN_ROWS
from steadytrain.diagnosis.signs import fact, listed, measured, not_finite, ruled_out, seen, surveyed, symptom, when
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class LabelLeakage(Cause):
    """An input reveals the label, or the training knows the held-out rows.

    Means:
        One input column, or the label itself among the inputs, is enough to predict the label. Training looks too good;
        the model fails where that column is missing. The score on held-out rows is worth no more where these took
        part in the training: by columns that were chosen with their labels, or by copies of them.

    Causes:
        - the label itself among the inputs: embedded beside its token, or left in a padded field
        - features that hold the target or something computed from it; windows that reach one step too far
        - rows of the test set in the training set; a loss over all nodes of a graph, those of the test mask among them
        - columns chosen, or rows copied, before the split; overlapping windows that are split at random
        - a validation loader made from the training set
        - an identifier that follows the order of the classes

    Next:
        1. Check the named column: is it known at prediction time?
        2. Remove it and train again: that loss is the real one.
        3. Split first, by group or by time and not by row; fit and choose with the training rows alone.
    """

    axis = "data"
    base_rate = 3.0
    rivals = ("causal-leak",)
    expects = like("script", removed=("shuffle-column", "hide-labels"))
    confirming = ("shuffle-column", "hide-labels")
    spared = ("learning-rate-third",)
    interventions = (
        Intervention(
            "drop-column",
            4,
            "remove the column that reveals the label from the inputs",
            "shuffle-column",
            code="inputs = inputs.drop(columns=[name])",
        ),
        Intervention(
            "hide-labels",
            4,
            "keep the labels out of the model's inputs",
            "hide-labels",
            code="output = model(ids)  # without the labels",
        ),
        Intervention(
            "split-first",
            5,
            "split before anything is fitted, chosen or copied",
            code="train, test = rows[:cut], rows[cut:]  # then fit to train alone",
            of=("fitted-before-split", "split-windows", "trained-evaluation"),
        ),
        CLEAN_ROWS,
        Intervention(
            "mask-loss",
            4,
            "take the loss over the nodes of the training mask",
            code="loss = criterion(out[data.train_mask], data.y[data.train_mask])",
            of=("unmasked-nodes",),
        ),
    )
    grade = "A"
    source = "Kaufman and others, Leakage in data mining (KDD 2011); permutation tests in the project's preflight"

    def signature(self, case: Case) -> Signature:
        # Sorted labels have few classes at a time, and nearly any input separates two of them.
        in_order = (
            measured(case, "labels_sorted") > SORTED_MIN or measured(case, "label_most_common_share") > COMMON_MAX
        )
        # An encoder may read what its decoder writes; a model that only reads on must not be given the next token.
        read = fact(case, "labels_read") is not None and fact(case, "label_shift_trained") == 1
        causal = read and measured(case, "causal_gradient") == 0.0
        return Signature(
            (
                *listed(
                    case,
                    "labels_leaked",
                    HINT if in_order else CERTAIN,
                    "one input alone predicts the label: {names}",
                    invariant=not in_order,
                ),
                *when(
                    read,
                    CERTAIN if causal else STRONG,
                    "the labels themselves are embedded beside the tokens that they follow",
                    "fact labels_read",
                    invariant=causal,
                ),
                *symptom(case, CERTAIN, *OF_SPLITS, invariant=True),
                *symptom(case, CERTAIN, "unmasked-nodes", invariant=True),
                *symptom(case, CERTAIN, "trained-evaluation", invariant=True),
                *symptom(case, CERTAIN, "visible-target", invariant=True),
                *symptom(case, FAIR, "loss-collapse", "validation-gap"),
                *when(
                    surveyed(case)
                    and not read
                    and not fact(case, "labels_leaked")
                    and seen(case, "visible-target") is None,
                    -FAIR,
                    "no single input predicts the label",
                    "fact labels_leaked",
                ),
                *ruled_out(not_finite(case), "a leak makes nothing infinite", "symptoms"),
            )
        )


SORTED_MIN, COMMON_MAX = 1.3, 0.6
OF_SPLITS = ("fitted-before-split", "split-windows")
