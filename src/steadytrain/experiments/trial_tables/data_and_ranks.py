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
        "synchronize",
        "Gradients averaged over ranks before the update.",
        changes="Nothing: it is never run. It stands here so that a diagnosis says what it lacks.",
        tells="Ranks that train separately would train together.",
        beware="Check by hand: a digest of the parameters of each rank after one step, in the script itself.",
        alone="there is only one process",
        why=(
            "no change averages gradients in a script that does not; compare a digest of the parameters over ranks, or "
            "wrap the model and run the script"
        ),
        axis="distributed",
    ),
)
