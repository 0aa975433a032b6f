"""The machine under a run: host and accelerators, read on a cadence of wall-clock time by a thread of its own.

``sampler`` holds the thread, ``host`` reads ``/proc``, ``allocator`` asks torch, ``nvml`` and ``kernel_log`` ask the
driver, ``columns`` says what each number means. What a machine does not have, or does not tell, is absent: NaN in a
reading, and never zero. Not here: what a reading says about training.
"""

from steadytrain.capture.machine.machine_columns import COLUMNS
from steadytrain.capture.machine.sampler import MachineSampler, Sample

__all__ = ["COLUMNS", "MachineSampler", "Sample"]
