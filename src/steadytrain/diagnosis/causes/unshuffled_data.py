"""Batches in the order of the data set."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, FAIR, HINT, Cause, Intervention, Signature
from steadytrain.diagnosis.interventions import SEEDS
from steadytrain.diagnosis.signs import above, below, fact, fails, holds, measured, not_finite, ruled_out, seen, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


SMALLER_STEPS = ("beta2-lower", "update-clipping", "learning-rate-third", "learning-rate-tenth", "longer-warmup")
"""Each class or source is learned more slowly with them, and forgotten more slowly."""


@final
class UnshuffledData(Cause):
    """Batches follow the order of the data set, so consecutive batches are similar.

    Means:
        The model learns one source or label after the other and forgets the last one: the training loss moves in waves
        or steps while the held-out loss does not improve. Healthy batches are drawn from all of the data.

    Causes:
        - `shuffle=False`, or a sampler without `set_epoch` (pytorch #31771)
        - a shuffle buffer shorter than the runs of similar rows in the file
        - a weak permutation: a linear congruence with a small stride (Marin 32B)

    Next:
        1. Shuffle the data set once on disk, and again every epoch.
        2. Print the share of each label or source over 100 batches.
        3. Give each worker and rank its own seed, and the epoch to the sampler.
    """

    axis = "data"
    base_rate = 14.0
    rivals = ("data-shift", "repeated-data", "learning-rate-too-high")
    expects = like("shift", removed=("reorder",), either=("fresh-data", "synthetic-batch", *SMALLER_STEPS))
    confirming = ("reorder",)
    spared = ("learning-rate-third", "float32")
    interventions = (
        Intervention("shuffle", 4, "shuffle the data", "reorder", code="loader = DataLoader(dataset, shuffle=True)"),
        SEEDS,
    )
    grade = "A"
    source = "pytorch #5059, #31771; Marin 32B retrospective; Lightning #20412"

    def signature(self, case: Case) -> Signature:
        # Neighbouring labels of a sequence are neighbours in the text, not in the data set.
        sequences = fact(case, "token_rows") is not None
        # A loader that shuffles may still group classes on purpose. That is not the order of the data set.
        unknown = fact(case, "loader_shuffles") is None
        changes = measured(case, "label_mix_change") > CHANGE_ERRORS
        certain = fact(case, "loader_shuffles") is False or (unknown and changes)
        in_order = above(
            case,
            "labels_sorted",
            1.3 if fact(case, "loader_shuffles") is False else 2.0,
            CERTAIN if certain else HINT,
            "neighbouring labels are equal {value} times as often as after a shuffle",
            invariant=certain,
        )
        repeats = seen(case, "repeated-order") is not None  # it shuffles, and the same way each time
        return Signature(
            (
                *(() if sequences else in_order),
                *fails(case, "loader_shuffles", FAIR, "the data loader does not shuffle"),
                *above(
                    case,
                    "label_mix_change",
                    CHANGE_ERRORS,
                    FAIR,
                    "the share of a label changed by {value} standard errors between halves",
                ),
                *(() if repeats else holds(case, "loader_shuffles", -FAIR, "the data loader shuffles")),
                *symptom(case, CERTAIN, "repeated-order"),
                *symptom(case, CERTAIN, "sorted-labels", invariant=True),
                *symptom(case, FAIR, "oscillation"),
                *symptom(case, HINT, "divergence", "plateau", "no-learning"),
                *(
                    below(
                        case,
                        "labels_sorted",
                        1.3,
                        -FAIR,
                        "neighbouring labels are equal {value} times as often as after a shuffle",
                    )
                    if seen(case, "sorted-labels") is None  # within such batches nearly all labels are equal
                    else ()
                ),
                *ruled_out(not_finite(case), "order makes nothing infinite", "symptoms"),
            ),
        )


CHANGE_ERRORS = 6.0
"""Change of a label's share between halves, in standard errors. Chance does not reach this."""
