"""Statistics of many tensors at once: gradients, weights, updates and optimizer moments.

Outputs of modules are in ``activations``. Nothing here interprets a number.

:class:`TensorWatch` is the entry point; ``norms`` runs in every step. The device determines the pass over whole
tensors: ``numpy_pass``, ``triton_kernel`` or ``torch_pass``.
"""

from steadytrain.capture.tensors.dense import dense_values
from steadytrain.capture.tensors.statistics.histogram import HISTOGRAM_COLUMNS, log2_histogram
from steadytrain.capture.tensors.statistics.norms import (
    FLOAT32_MAX,
    OVERFLOWED,
    TensorState,
    exact_state,
    fetch,
    global_norm,
    l2_norms,
    recorded_norm,
)
from steadytrain.capture.tensors.statistics.readback import Readback
from steadytrain.capture.tensors.statistics.tensor_columns import COLUMNS
from steadytrain.capture.tensors.statistics.tensor_watch import TensorWatch

__all__ = [
    "COLUMNS",
    "FLOAT32_MAX",
    "HISTOGRAM_COLUMNS",
    "OVERFLOWED",
    "Readback",
    "TensorState",
    "TensorWatch",
    "dense_values",
    "exact_state",
    "fetch",
    "global_norm",
    "l2_norms",
    "log2_histogram",
    "recorded_norm",
]
