"""Reads the host and its accelerators, in a separate thread and at fixed intervals of wall-clock time.

Nothing here relates a reading to training. A value that the machine does not report is absent, never zero.
"""

from steadytrain.capture.machine.machine_columns import COLUMNS
from steadytrain.capture.machine.sampler import MachineSampler, Sample

__all__ = ["COLUMNS", "MachineSampler", "Sample"]
