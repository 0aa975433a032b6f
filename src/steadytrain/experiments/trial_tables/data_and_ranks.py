"""Trials of batches, loader workers and ranks."""

from __future__ import annotations

from steadytrain.experiments.specs import Change
from steadytrain.experiments.trial import Trial
from steadytrain.experiments.trial_rows import NeedsRanks, OneChange

ROWS: tuple[Trial, ...] = (
    OneChange(
        "smaller-batch",
        "Half of the rows of each batch.",
        changes="Only the first half of each loader batch.",
        tells="Rows in the second half; memory; losses that depend on the number of rows.",
        beware="Noisier gradients.",
        makes=(Change("smaller-batch", {"divisor": 2}),),
        removes="transient",
        either="data rate moments state logits half shift operation script",
        other_loss=True,
    ),
    OneChange(
        "one-worker",
        "Data loaders without workers, from the script's own beginning.",
        changes="The training process loads the batches itself: the script's own, none from the tape.",
        tells="Faults of loader workers: equal random numbers, a changing order.",
        beware="Other batches than those recorded.",
        makes=(Change("one-worker"),),
        from_own_beginning=True,
        removes="transient ranks",
        either="half",
        axis="data",
    ),
    NeedsRanks(
        "one-rank",
        "One process in place of several ranks.",
        changes="Nothing: it is never run. It stands here so that a diagnosis says what it lacks.",
        tells="Faults of communication between ranks would go away.",
        beware="Try it by hand: the same script with one process, its batch as large as that of all ranks together.",
        alone="there is one process already",
        why=(
            "steps of several ranks are not on a tape, so none can be done again; run the script with one process and "
            "the batch of all ranks"
        ),
        axis="distributed",
    ),
    NeedsRanks(
        "synchronize",
        "Gradients averaged over ranks before the update.",
        changes="Nothing: it is never run. It stands here so that a diagnosis says what it lacks.",
        tells="Ranks that train separately would train together.",
        beware="Check by hand: a digest of the parameters of each rank after one step, in the script itself.",
        alone="there is only one process",
        why=(
            "steps of several ranks are not on a tape, so none can be done again; compare a digest of the parameters "
            "over ranks"
        ),
        axis="distributed",
    ),
)
