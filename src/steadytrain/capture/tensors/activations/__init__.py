"""Statistics of the outputs of modules: one row per module, in the scheduled steps.

In all other steps there are no such hooks and nothing runs.

:class:`Activations` is the entry point. :data:`COLUMNS` lists the measurements.
"""

from steadytrain.capture.tensors.activations.measurement import Taken
from steadytrain.capture.tensors.activations.module_columns import COLUMNS, DTYPES
from steadytrain.capture.tensors.activations.output_hooks import Activations
from steadytrain.capture.tensors.activations.unseen_modules import SILENT_SLOTS

__all__ = ["COLUMNS", "DTYPES", "SILENT_SLOTS", "Activations", "Taken"]
