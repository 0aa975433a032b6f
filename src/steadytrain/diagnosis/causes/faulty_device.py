"""A device that computes wrong each time."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import fact, ruled_out, when
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class FaultyDevice(Cause):
    """One device gives other bits for the same step than the other devices of its kind, each time or now and then.

    Means:
        The same steps from the same state were run on several GPUs of one kind, or on several cores. Sound ones agree
        to the last bit. This one does not, so it computes wrong, and no checksum of memory sees it.

    Causes:
        - an arithmetic unit that fails for some operands, often only at some temperature or clock
        - memory of the device without error correction
        - a board that runs beyond its clock or voltage

    Next:
        1. Take the device out of service, by its serial number and slot.
        2. Continue from the last snapshot before the onset, on another device.
        3. Run the vendor's diagnostics on it (for NVIDIA `dcgmi diag -r 3`), and look for Xid and machine checks.
    """

    axis = "hardware"
    base_rate = 60.0
    rivals = ("hardware-fault", "nondeterminism", "compiled-code-mismatch")
    expects = like("script")
    spared = ()
    interventions = (
        Intervention(
            "replace-device",
            7,
            "run on another device, and take this one out of service",
            code="CUDA_VISIBLE_DEVICES=...  # without it; for a core: taskset -c ...",
        ),
    )
    grade = "A"
    source = "Cores that don't count (Hochschild 2021); Meta 2102.11245; Llama 3 report; Megatron's rerun machine"

    def signature(self, case: Case) -> Signature:
        found = fact(case, "faulty_device")
        return Signature(
            (
                *when(found is not None, CERTAIN, f"replays on several devices: {found}", "fact faulty_device"),
                *ruled_out(found is None, "no replays on several devices found one (replay --devices)"),
            )
        )
