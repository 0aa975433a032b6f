"""Readings of the host and its accelerators, taken by a thread of its own on a wall-clock cadence.

No reading is related to training here; a value that the machine does not report is absent, never zero.
"""

from steadytrain.capture.machine.machine_columns import COLUMNS
from steadytrain.capture.machine.sampler import MachineSampler, Sample

__all__ = ["COLUMNS", "MachineSampler", "Sample"]
