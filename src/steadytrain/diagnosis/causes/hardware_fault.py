"""A result that does not come again."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, HINT, STRONG, Cause, Intervention, Signature
from steadytrain.diagnosis.replay_signs import differs_at_onset
from steadytrain.diagnosis.signs import fact, operation, quiet, ruled_out, symptom, when
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class HardwareFault(Cause):
    """The machine computed something wrong once: the same step from the same state does not repeat the fault.

    Means:
        The replay is exact to the last bit up to the step, but the step has no symptom: the fault came from outside the
        program. Few such faults are NaN; about 1 percent in a study of faults in gates (2605.04213).

    Causes:
        - memory or an arithmetic unit that fails intermittently
        - a copy between devices that returns zeros (nccl-tests #117)
        - power, heat, an unstable clock

    Next:
        1. Run `steadytrain replay INCIDENT --devices`: if all devices repeat the recording, hardware is not the cause.
        2. Check the kernel log for machine checks and Xid, and the memory's error counts.
        3. Take the device out of service, and continue from the last snapshot.
    """

    axis = "hardware"
    base_rate = 12.0
    rivals = ("nondeterminism", "faulty-device")
    expects = like("transient")
    confirming = ("unchanged",)
    spared = ()
    interventions = (
        Intervention(
            "recompute",
            4,
            "go on from the snapshot before it",
            "unchanged",
            code="model.load_state_dict(snapshot)  # the state before the step, then go on",
        ),
        Intervention(
            "other-device", 7, "run the step on another device", code='model.to("cuda:1")  # or CUDA_VISIBLE_DEVICES=1'
        ),
    )
    grade = "A"
    source = "Llama 3 report (6 events in 54 days); 2502.12340; 2605.04213; Megatron's rerun machine"

    def signature(self, case: Case) -> Signature:
        alone = _differs_there_alone(case)
        return Signature(
            (
                *symptom(case, HINT, "nonfinite-weight", "nonfinite-loss", "nonfinite-gradient", "loss-spike"),
                *when(
                    alone,
                    CERTAIN,
                    f"a replay is bit-identical up to step {case.onset}, where the symptom began, and not "
                    "from there on",
                    "fact first_difference",
                ),
                # If the stored state already holds the damaged weights, the fault recurs in a replay, too.
                *(
                    ()
                    if alone
                    else operation(
                        case, -STRONG, "{operation} at {line} makes it again in a new process", lambda found: True
                    )
                ),
                *ruled_out(fact(case, "faulty_device") is not None, "one device computes wrong again and again"),
                *ruled_out(quiet(case), "no symptom above a note was seen", "symptoms"),
            ),
        )


def _differs_there_alone(case: Case) -> bool:
    """Whether a replay first differs where the symptom began, after some identical steps."""
    began = case.onset - (case.begin if case.begin is not None else case.onset)
    return fact(case, "replay_exact") is False and differs_at_onset(case) and began > EXACT_STEPS_MIN


EXACT_STEPS_MIN = 2
"""A run that is not repeatable at all differs within its first steps."""
