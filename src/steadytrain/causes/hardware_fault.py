"""A result that does not come again."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.causes.contract import HINT, STRONG, Cause, Intervention, Signature
from steadytrain.causes.signs import operation, quiet, ruled_out, symptom
from steadytrain.causes.table import column

if TYPE_CHECKING:
    from steadytrain.trials.case import Case


@final
class HardwareFault(Cause):
    """The machine computed something wrong once: the same step from the same state does not do it again.

    Means:
        An exact replay of the steps before, to the last bit, and then a step that has no symptom: what happened came
        from outside of the program. Few of these are NaN; about 1 percent in a study of faults in gates (2605.04213).

    Causes:
        - memory or an arithmetic unit that fails now and then
        - a copy between devices that returns zeros (nccl-tests #117)
        - power, heat, an unstable clock

    Next:
        1. Replay on the same device, then on another: the same on both is no fault of hardware.
        2. Look at the kernel log for machine checks and Xid, and at the memory's error counts.
        3. Take the device out of service, and go on from the last snapshot.
    """

    base_rate = 12.0
    rivals = ("nondeterminism", "bad-batch", "compiled-code-mismatch", "custom-operation-fault", "rank-divergence")
    expects = column("transient")
    confirming = ("unchanged",)
    spared = ()
    interventions = (
        Intervention("recompute", 4, "go on from the snapshot before it", "unchanged"),
        Intervention("other-device", 7, "run the step on another device"),
    )
    grade = "A"
    source = "Llama 3 report (6 events in 54 days); 2502.12340; 2605.04213; Megatron's rerun machine"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *symptom(case, HINT, "nonfinite-weight", "nonfinite-loss", "nonfinite-gradient", "loss-spike"),
                *operation(case, -STRONG, "{operation} at {line} makes it again in a new process", lambda found: True),
                *ruled_out(quiet(case), "no symptom above a note was seen", "symptoms"),
            ),
        )
