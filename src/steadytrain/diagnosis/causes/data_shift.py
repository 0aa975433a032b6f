"""Data of another kind from some step on, or in the evaluations."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.amplified_signs import makes_inputs
from steadytrain.diagnosis.cause import CERTAIN, FAIR, HINT, STRONG, Cause, Intervention, Signature
from steadytrain.diagnosis.interventions import CLEAN_ROWS, FRESH_DATA, LONGER_WARMUP, LOWER_RATE
from steadytrain.diagnosis.row_signs import copies_since, missing_code, overwritten
from steadytrain.diagnosis.signs import above, below, fact, measured, quiet, renumbered, ruled_out, seen, symptom, when
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class DataShift(Cause):
    """From some step on all batches, or those of all evaluations, come from another distribution.

    Means:
        The loss on the new data is higher because they are new, not because the weights are damaged: the probe loss on
        old batches stays the same until updates on new ones change it. Data from before the shift removes the rise;
        dropping one batch does not.

    Causes:
        - a stage of the data plan, a new shard, a file in another format or language
        - preprocessing or normalisation that changed with a restart
        - curriculum: longer or harder samples
        - validation data without the normalisation of the training data, or with another one

    Next:
        1. Compare batches before and after: decode some, compare their scale and the share of each source.
        2. If the shift is planned, warm the rate up again and keep 1 to 5 percent of old data.
        3. If not, find the shard or the setting, and go back to the snapshot.
        4. For an evaluation: apply the training transform without its random parts, and compare mean and spread.
    """

    axis = "data"
    base_rate = 5.0
    rivals = ("bad-batch", "unshuffled-data", "learning-rate-too-high", "second-moment-lag", "amplifying-operation")
    expects = like("shift", either=("keep-rows",))
    evidence = ("fact data_shift",)
    confirming = ("fresh-data", "inputs-as-before")
    spared = ("beta2-lower", "drop-batch", "float32")
    interventions = (
        Intervention(
            "inputs-as-before",
            4,
            "scale the inputs of the new part as those before: units, /255, codes for missing values",
            "inputs-as-before",
            code="inputs = (inputs - mean_of_new_part) / std_of_new_part  # or fill -9999",
        ),
        LOWER_RATE,
        LONGER_WARMUP,
        FRESH_DATA,
        CLEAN_ROWS,
    )
    grade = "B"
    source = "Marin 32B retrospective; 2308.04014 on re-warming; llm-foundry #232"

    def signature(self, case: Case) -> Signature:
        shift = measured(case, "data_shift")
        return Signature(
            (
                *above(
                    case,
                    "data_shift",
                    FAR_SCALES,
                    CERTAIN,
                    "batches from the onset on are {value} standard deviations from those before",
                ),
                *when(
                    1.0 < shift <= FAR_SCALES,
                    STRONG,
                    f"batches from the onset on are {shift:.2g} standard deviations from those before",
                    "fact data_shift",
                ),
                *below(
                    case,
                    "data_shift",
                    0.3,
                    -STRONG,
                    "batches from the onset on are like those before ({value} standard deviations)",
                ),
                *above(
                    case, "batch_scale", UNITS_SCALE, FAIR, "its largest input is {value} times that of the usual batch"
                ),
                *missing_code(case, -STRONG),
                *makes_inputs(case, -CERTAIN - STRONG),
                *renumbered(case, -STRONG),
                *copies_since(case, -CERTAIN - STRONG),
                *when(
                    seen(case, "unused-episode-end", "limit-as-end") is not None,
                    -CERTAIN,
                    "an agent makes the data by its own moves, which change as it learns",
                    "symptom",
                ),
                *when(
                    bool(fact(case, "wrapped_integers")),
                    -CERTAIN,
                    "integers of the script wrap around, and make other numbers of the same data",
                    "fact wrapped_integers",
                ),
                *overwritten(case, -CERTAIN - STRONG),
                *above(case, "label_mix_change", 6.0, HINT, "the share of a label changed by {value} standard errors"),
                *symptom(case, CERTAIN, "evaluation-scale", invariant=True),
                *symptom(case, HINT, "divergence", "loss-spike", "oscillation"),
                *ruled_out(
                    quiet(case) and seen(case, "evaluation-scale") is None,
                    "no symptom above a note was seen",
                    "symptoms",
                ),
            ),
        )


UNITS_SCALE = 20.0
"""Inputs that grow so much are in another unit: bytes for shares of 1, millimetres for metres."""

FAR_SCALES = 5.0
"""Distance in standard deviations of single batches. Two halves of one source are never that far apart."""
