"""Inputs that hold no information."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, HINT, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import ruled_out, seen, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class EqualInputs(Cause):
    """All rows of the input are the same, often one constant: what the pipeline read was lost on the way.

    Means:
        The model cannot tell the rows apart, so it learns how frequent each target is and nothing else. The fault lies
        between what is stored and what the model gets, and no setting of the training mends it.

    Causes:
        - a cast back to integers after the division by 255; an integer division
        - ids that are all unknown, because the vocabulary was built from other tokens
        - a mean that is subtracted over the wrong axis, so that each value is subtracted from itself
        - an index that is ignored, a window outside of the signal, a mask that hides everything

    Next:
        1. Print the smallest and the largest value of a batch right before the model.
        2. Go back through the pipeline until two rows differ.
        3. Assert that in a test of the data set.
    """

    axis = "data"
    base_rate = 3.0
    rivals = ("repeated-data", "shared-inputs", "label-misalignment", "learning-rate-too-low", "dead-units")
    expects = like("script")
    spared = ("drop-batch", "float32")
    interventions = (
        Intervention(
            "mend-pipeline",
            4,
            "find the step of the pipeline after which all rows are the same",
            code="assert not (batch == batch[:1]).all()  # after each step, from the file to the model",
        ),
    )
    grade = "B"
    source = "equal inputs with different targets cannot be told apart"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *symptom(case, CERTAIN, "equal-inputs", invariant=True),
                *symptom(case, HINT, "no-learning", "repeated-batch", "representation-collapse"),
                *ruled_out(seen(case, "equal-inputs") is None, "the rows of the input were not all the same"),
            )
        )
