"""Coefficients of an average of weights that do not add up to one."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, HINT, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import ruled_out, seen, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class UnnormalizedAverage(Cause):
    """An average of weights has coefficients that do not add up to one, so each merge shrinks the model.

    Means:
        The coefficients were divided by a total over all members, and only some of them took part. The sum is then less
        than one, and all weights get smaller with every merge, until the outputs are nearly constant.

    Causes:
        - federated rounds in which some clients are late or are not drawn
        - a soup or an average of checkpoints that divides by a wrong count

    Next:
        1. Divide by the total over those that take part.
        2. Assert that the coefficients add up to one.
    """

    axis = "harness"
    base_rate = 1.0
    rivals = ("weight-decay-misuse", "uncopied-state")
    expects = like("script")
    spared = ("drop-batch", "float32")
    interventions = (
        Intervention(
            "normalize-coefficients",
            4,
            "divide by the total over those that take part",
            code="total = sum(size for size, _ in replies)  # not over all clients",
        ),
    )
    grade = "B"
    source = "1602.05629 (federated averaging): each client of the round has its share of the round's samples"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *symptom(case, CERTAIN, "shrunken-loads", invariant=True),
                *symptom(case, HINT, "lost-progress", "divergence", "replaced-weights"),
                *ruled_out(seen(case, "shrunken-loads") is None, "no load shrank the weights"),
            )
        )
