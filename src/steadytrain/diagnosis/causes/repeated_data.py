"""The same samples again."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, FAIR, HINT, STRONG, Cause, Signature
from steadytrain.diagnosis.interventions import FRESH_DATA, ONE_WORKER, SEEDS
from steadytrain.diagnosis.row_signs import copies_since
from steadytrain.diagnosis.signs import above, measured, not_finite, ruled_out, seen, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class RepeatedData(Cause):
    """The run unintentionally repeats the same samples, or the same random numbers.

    Means:
        Batches repeat within one pass. The training loss falls below its trend while the model recognises samples, and
        jumps back at new ones; the held-out loss does not follow.

    Causes:
        - the loader restarts on resume (Lightning #18780)
        - workers or ranks with the same seed: each draws the same augmentations or rows
        - a weighted sampler with a weight for each class in place of each row: it draws from the first few rows only
        - a sampler that draws the same few rows again: mined hard examples, a weight that outgrows all others
        - a data set joined with itself; an iterator created anew each step
        - a constant seed that is set in each step, or for each row: the same noise, masks or rows each time
        - a `worker_init_fn` that seeds by the number of the worker: each epoch draws what the last one drew

    Next:
        1. Print the sample ids of some steps, and count duplicates.
        2. Save the loader's state, or skip the samples already seen, on resume.
        3. `worker_init_fn`, and a separate generator for each worker and rank.
    """

    axis = "data"
    base_rate = 5.0
    rivals = ("label-leakage", "unshuffled-data", "causal-leak", "padding-in-loss")
    expects = like("script", removed=("fresh-data",))
    confirming = ("fresh-data",)
    spared = ("learning-rate-third",)
    interventions = (FRESH_DATA, SEEDS, ONE_WORKER)
    grade = "A"
    source = "Lightning #18780; ml-engineering book; pytorch PR 56488 on equal seeds of workers"

    def signature(self, case: Case) -> Signature:
        often, steps = measured(case, "repeated_batches"), measured(case, "surveyed_steps")
        # Training on all data at once, or on one batch to test whether it can be learned, is intended.
        always_one = often * steps >= steps - FEW_BATCHES
        # An epoch in the same order repeats every batch after all others.
        rows = measured(case, "repeated_after") * measured(case, "surveyed_rows") / steps if steps > 0 else math.nan
        # Several updates per batch, optimizers that take turns, and workers that all read the same data look alike
        # here.
        directly = measured(case, "repeated_after") == 1 and not measured(case, "workers") > 1
        meant = always_one or directly or rows >= EPOCH_SHARE * measured(case, "dataset_rows")
        since = copies_since(case, CERTAIN)
        again = seen(case, "repeated-batch")
        stuck = again is not None and again.severity != "note" and "stuck" in again.numbers
        within_an_epoch = measured(case, "surveyed_rows") <= measured(case, "dataset_rows")
        return Signature(
            (
                *above(
                    case,
                    "repeated_batches",
                    0.1,
                    HINT if meant else CERTAIN,
                    "{value} of the batches are bit for bit an earlier one",
                    invariant=not meant,
                ),
                *(
                    above(case, "repeated_rows", DRAWN_SHARE, FAIR, "{value} of the rows of an epoch came twice")
                    if within_an_epoch
                    else ()
                ),
                *since,
                *symptom(case, CERTAIN, "repeated-seed", invariant=True),
                *symptom(case, CERTAIN, "undrawn-rows", invariant=True),
                *symptom(case, CERTAIN, "worker-duplicates", invariant=True),
                *symptom(case, CERTAIN if stuck else STRONG, "repeated-batch", invariant=stuck),
                *symptom(case, STRONG, "same-data-on-ranks"),
                *symptom(case, HINT, "validation-gap", "loss-collapse"),
                *ruled_out(
                    measured(case, "repeated_batches") == 0.0
                    and not measured(case, "repeated_rows") > 0.02
                    and seen(case, "repeated-seed", "undrawn-rows") is None
                    and not stuck,
                    "no batch came twice",
                ),
                *ruled_out(not_finite(case), "repetition makes nothing infinite", "symptoms"),
            ),
        )


EPOCH_SHARE = 0.9
"""Share of the data set's rows. An epoch may drop its last batch."""

FEW_BATCHES = 1.5
DRAWN_SHARE = 0.4
"""Sampling as many rows as the data set has, with replacement, repeats 1/e of them."""
