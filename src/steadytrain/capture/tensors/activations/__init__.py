"""Statistics of the outputs of modules: one row per module, in the steps that the schedule asks for.

In other steps no hook is on a module, and nothing runs.

:class:`Activations` is the entry point. :data:`COLUMNS` lists what is measured.
"""

from steadytrain.capture.tensors.activations.measurement import Taken
from steadytrain.capture.tensors.activations.module_columns import COLUMNS, DTYPES
from steadytrain.capture.tensors.activations.output_hooks import Activations
from steadytrain.capture.tensors.activations.unseen_modules import SILENT_SLOTS

__all__ = ["COLUMNS", "DTYPES", "SILENT_SLOTS", "Activations", "Taken"]
