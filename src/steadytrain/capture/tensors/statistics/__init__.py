"""Statistics of many tensors: gradients, weights, updates and optimizer moments.

| file | what is in it |
|---|---|
| ``norms`` | the L2 norm of everything at the price of one look, in every step; the exact second look |
| ``tensor_watch`` | one row a parameter: :class:`TensorWatch`, called before and after the update |
| ``columns`` | what it measures, and what of that is exact |
| ``histogram`` | log2 histograms of magnitudes |
| ``passes`` | one pass over whole tensors, by what fits the device: ``host``, ``kernel`` (Triton), ``device`` |
| ``sample``, ``layout``, ``sampled`` | a fixed part of each tensor, for what would cost too much on the whole |
| ``assemble`` | from partial results to a reading |
| ``readback`` | numbers on their way from a device to the host |
| ``quiet`` | under which modes our own operations run |

Not here: activations, and what the numbers mean.
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
