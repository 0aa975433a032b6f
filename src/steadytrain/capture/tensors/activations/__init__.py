"""What the modules of a model put out: one row a module, measured in the steps that the owner asks for.

:class:`Activations` is the whole of it. :data:`COLUMNS` says what is measured. Nothing here runs in a step that was not
asked for: hooks stand on the modules only while it is armed.

| file | what it is |
|---|---|
| ``watch`` | the hooks: put on by ``arm``, taken off when the first backward begins |
| ``measurement`` | what they show, gathered |
| ``outputs`` | statistics of one tensor, and which tensor of an output is looked at |
| ``attention`` | entropy and largest logit of attention heads, from what the script hands to torch |
| ``logits`` | log Z of the model's logits |
| ``rows`` | from the numbers of single calls to the rows of the table |
| ``functions`` | torch functions that are stood in for during a measured forward |
| ``compiled`` | which modules lie inside compiled code and are left alone |
| ``slots`` | where compiled graphs write what their modules put out, if that was asked for |
| ``unseen`` | what was not seen, in words for the run's notes |
"""

from steadytrain.capture.tensors.activations.measurement import Taken
from steadytrain.capture.tensors.activations.module_columns import COLUMNS, DTYPES
from steadytrain.capture.tensors.activations.output_hooks import Activations
from steadytrain.capture.tensors.activations.unseen_modules import SILENT_SLOTS

__all__ = ["COLUMNS", "DTYPES", "SILENT_SLOTS", "Activations", "Taken"]
