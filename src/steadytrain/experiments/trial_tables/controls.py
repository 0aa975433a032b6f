"""Controls: the recorded steps with nothing changed, or with something that should not matter."""

from __future__ import annotations

from steadytrain.experiments.specs import Change
from steadytrain.experiments.trial import Trial
from steadytrain.experiments.trial_rows import OneChange

ROWS: tuple[Trial, ...] = (
    OneChange(
        "unchanged",
        "The recorded steps once more, nothing changed.",
        changes="Nothing: the same state, batches, random numbers and hyper-parameters, from the snapshot on.",
        tells=(
            "Whether the symptom comes again at all. Where it does not, no other trial proves anything: a transient "
            "fault of the hardware, or something that is neither recorded nor repeatable."
        ),
        beware="A script that decides by its own counters does so only where it made its steps before by itself.",
        control=True,
        removes="transient",
        alike="control",
    ),
    OneChange(
        "perturbed",
        "The recorded steps with every weight nudged by one unit in the last place.",
        changes="The first element of each weight is the next number that its format has.",
        tells=(
            "How firm the symptom is: one that a single bit removes hangs on chance, and no trial of it proves much."
        ),
        beware="A chaotic run comes apart within hundreds of steps; over some tens it should not.",
        makes=(Change("one-ulp"),),
        control=True,
        removes="transient",
        either="moments half operation",
        alike="control",
    ),
    OneChange(
        "other-seed",
        "The recorded steps with other random numbers inside the model.",
        changes="Dropout and noise in the forward draw others; batches, order and initial state stay.",
        tells="Whether the symptom hangs on the luck of a dropout mask.",
        beware="A model that draws nothing is unchanged by it.",
        makes=(Change("other-seed", {"seed": 1}),),
        control=True,
        removes="transient",
        either="moments half operation",
        alike="control",
    ),
)
