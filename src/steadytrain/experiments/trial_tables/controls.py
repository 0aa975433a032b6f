"""Controls: the recorded steps with nothing changed, or with something that should not matter."""

from __future__ import annotations

from steadytrain.experiments.specs import Change
from steadytrain.experiments.trial import Trial
from steadytrain.experiments.trial_rows import OneChange

ROWS: tuple[Trial, ...] = (
    OneChange(
        "unchanged",
        "The recorded steps again, unchanged.",
        changes="Nothing: the same state, batches, random numbers and hyper-parameters, from the snapshot on.",
        tells=(
            "Whether the symptom recurs. If it does not, no other trial proves anything: the cause is a transient "
            "fault of the hardware, or something that is neither recorded nor repeatable."
        ),
        beware="A script that branches on its own counters needs to run its earlier steps itself.",
        control=True,
        always=True,
        removes="transient",
        alike="control",
        within_step=True,
    ),
    OneChange(
        "perturbed",
        "The recorded steps with every weight nudged by one unit in the last place.",
        changes="The first element of each weight becomes the next number of its dtype.",
        tells=(
            "How robust the symptom is: if a single bit removes it, it depends on chance, and no trial proves much."
        ),
        beware="A chaotic run diverges within hundreds of steps; within some tens it should not.",
        makes=(Change("one-ulp"),),
        control=True,
        always=True,
        removes="transient",
        either="moments half operation",
        alike="control",
        within_step=True,
    ),
    OneChange(
        "other-seed",
        "The recorded steps with other random numbers inside the model.",
        changes="Dropout and noise in the forward use other random numbers; batches, order and initial state stay.",
        tells="Whether the symptom depends on a particular dropout mask.",
        beware="A model that draws nothing is unchanged by it.",
        makes=(Change("other-seed", {"seed": 1}),),
        control=True,
        always=True,
        removes="transient",
        either="moments half operation",
        alike="control",
        within_step=True,
    ),
)
