"""One batch that the run cannot digest."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.amplified_signs import amplifies
from steadytrain.diagnosis.cause import FAIR, HINT, STRONG, Cause, Signature
from steadytrain.diagnosis.interventions import CLEAN_ROWS, CLIP, DROP_BATCH
from steadytrain.diagnosis.mask_signs import empty_mask
from steadytrain.diagnosis.row_signs import holds_nan_from_before, long_rows, missing_code
from steadytrain.diagnosis.signs import above, below, fact, listed, quiet, rows_of, ruled_out, symptom, when
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class BadBatch(Cause):
    """One batch holds samples that are damaged, mislabelled or far from all others, and its gradient damages the model.

    Means:
        The loss of this batch is far above that of others in the same state, and the run continues well without it. The
        batch alone is often not to blame: PaLM (2204.02311) and 2304.09871 fed "guilty" batches in another state and
        saw no spike. So it is the cause only if dropping it removes the symptom and repairing the optimizer's state
        does not. If both do, an ordinary hard batch met a vulnerable state. A batch of far longer rows, of usual
        values, is rare and not damaged: if nothing clips the gradients, that is the cause.

    Causes:
        - corrupt or truncated files, wrong encodings, rows of zeros or of huge values
        - labels that do not belong to their inputs
        - runs of repeated n-grams: 32 repeats or more in OLMo 2 (2501.00656)
        - a batch of one source because mixing came before tokenizing

    Next:
        1. Decode the outlying rows and read them.
        2. Skip the batch, or mask these rows, and continue from the snapshot before it.
        3. Search the data set for similar rows, and filter them before the loader.
    """

    axis = "data"
    base_rate = 15.0
    rivals = (
        "second-moment-lag",
        "stale-optimizer-state",
        "learning-rate-too-high",
        "data-shift",
        "nonfinite-input",
        "hardware-fault",
        "half-precision-overflow",
        "singular-operation",
        "amplifying-operation",
    )
    expects = like("data")
    confirming = ("drop-batch",)
    spared = ("beta2-lower", "float32", "perturbed")
    interventions = (DROP_BATCH, CLEAN_ROWS, CLIP)
    grade = "A"
    source = "OLMo 2 2501.00656; PaLM 2204.02311 and 2304.09871 on innocent batches; llm-foundry #232, #759"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *symptom(case, HINT, "loss-spike", "gradient-norm-spike"),
                *above(
                    case,
                    "loss_excess",
                    2.0,
                    STRONG,
                    "the batch's loss is {value} times that of other batches in the same state",
                ),
                *below(
                    case,
                    "loss_excess",
                    1.3,
                    -FAIR,
                    "the batch's loss is {value} times that of other batches in the same state",
                ),
                *above(case, "batch_scale", 4.0, FAIR, "its largest input is {value} times that of the usual batch"),
                *above(case, "target_scale", 4.0, FAIR, "its largest target is {value} times that of the usual batch"),
                *above(
                    case,
                    "batch_distance",
                    4.0,
                    FAIR,
                    "its inputs are {value} standard deviations from those of other batches",
                ),
                *(long_rows(case, -STRONG) if fact(case, "clipped") is False else ()),
                *listed(case, "rows_suspect", HINT, "rows {names} of the batch stand out by loss or gradient"),
                *listed(case, "batch_nonfinite", -STRONG, "the batch holds NaN or Inf, which is another cause"),
                *when(
                    holds_nan_from_before(case),
                    -STRONG,
                    "a tensor of the script held NaN before the step, which is another cause",
                    "finding",
                ),
                *missing_code(case, -STRONG),
                *amplifies(case, -STRONG),
                *when(
                    bool(empty_mask(case)), -STRONG, f"{empty_mask(case)}, which is another cause", "fact empty_masks"
                ),
                *above(
                    case,
                    "data_shift",
                    1.0,
                    -FAIR,
                    "batches from the onset on are {value} standard deviations from those before",
                ),
                *ruled_out(quiet(case), "no symptom above a note was seen", "symptoms"),
            ),
            batch_rows=rows_of(case),
        )
