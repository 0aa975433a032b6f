"""Targets that the model cannot give."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, HINT, STRONG, Cause, Intervention, Signature
from steadytrain.diagnosis.interventions import CLEAN_ROWS, DROP_BATCH
from steadytrain.diagnosis.reach import is_out_of_scale
from steadytrain.diagnosis.signs import above, fact, listed, measured, ruled_out, seen, surveyed, symptom, when
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class InfeasibleTarget(Cause):
    """Targets are outside the range of the model's output.

    Means:
        A sigmoid gives 0 to 1 and the targets go to 5; a CTC target is longer than its input. The loss stays at that of
        the nearest possible output, units saturate, and the loss is infinite where the probability is exactly zero.

    Causes:
        - a last activation that does not suit the targets; targets that are not normalised
        - CTC targets, with their repeats, longer than the frames (icefall #135, pytorch #14401)

    Next:
        1. Compare the range of the targets with the range of the last operation.
        2. Remove the last activation, or scale the targets.
        3. CTC: drop such rows, or set `zero_infinity=True` and count them.
    """

    axis = "data"
    base_rate = 9.0
    rivals = (
        "bounded-output",
        "learning-rate-too-low",
        "dead-units",
        "bad-batch",
        "nonfinite-input",
        "no-supervised-tokens",
    )
    expects = like("script", removed=("scale-targets",), either=("drop-batch", "fresh-data", "synthetic-batch"))
    confirming = ("scale-targets", "drop-batch")
    spared = ("learning-rate-third", "float32")
    interventions = (
        DROP_BATCH,
        Intervention(
            "scale-targets",
            4,
            "bring the targets into the range of the output",
            "scale-targets",
            code="targets = (targets - targets.mean()) / targets.std()",
        ),
        CLEAN_ROWS,
    )
    grade = "A"
    source = "icefall #135, #580; pytorch #14401"

    def signature(self, case: Case) -> Signature:
        infeasible = fact(case, "ctc_infeasible_rows")
        seen_live = seen(case, "unreachable-targets") is not None
        return Signature(
            (
                *above(
                    case,
                    "targets_out_of_reach",
                    0.01,
                    CERTAIN,
                    "{value} of the targets lie outside of what the last operation can give",
                    invariant=True,
                ),
                *listed(
                    case,
                    "ctc_infeasible_rows",
                    CERTAIN,
                    "the inputs of rows {names} have fewer frames than their CTC targets need (one for each symbol, "
                    "and one between two equal ones): no alignment is possible, and the loss is infinite",
                    invariant=True,
                ),
                *symptom(case, CERTAIN, "unreachable-targets", invariant=True),
                *symptom(case, HINT, "plateau", "no-learning"),
                *ruled_out(
                    is_out_of_scale(case) and not infeasible,
                    "an activation after the last layer bounds the predictions, which is another cause",
                ),
                *ruled_out(
                    measured(case, "targets_out_of_reach") == 0.0 and not infeasible and not seen_live,
                    "all targets can be reached",
                ),
                *when(
                    surveyed(case) and fact(case, "targets_out_of_reach") is None and not infeasible and not seen_live,
                    -STRONG,
                    "the last operation has no bounds",
                    "facts",
                ),
            ),
            batch_rows=tuple(int(row) for row in infeasible) if isinstance(infeasible, list) else (),
        )
