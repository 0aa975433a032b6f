"""The measurements of a parameter, as columns of the table ``tensors``.

Exact means over every element. Sampled means over the sample of :mod:`.sample_chunks`, which is the whole tensor up to
``SAMPLE_MAX`` elements. Norm, min, max and mean cover the finite elements; a separate column counts the others. Values
that do not fit float32 are recorded as its largest number. NaN means not measured or not defined: no gradient, no such
moment, an empty tensor.
"""

from __future__ import annotations

from collections.abc import Mapping

EXACT = ("norm", "min", "max", "mean", "nonfinite")
"""The exact measurements of each of :data:`KINDS`, in the order of computation."""

KINDS = ("gradient", "weight", "first_moment", "second_moment")

_OF_A_KIND = {
    "norm": "L2 norm, exact",
    "min": "smallest element, exact",
    "max": "largest element, exact",
    "mean": "mean of the elements, exact",
    "nonfinite": "elements that are NaN or Inf, an exact count",
}
_WHAT = {
    "gradient": "the gradient as the optimizer applies it (after clipping, without loss scale)",
    "weight": "the weight after the update",
    "first_moment": "the optimizer's running mean of gradients (momentum), after the update",
    "second_moment": "what the optimizer divides by, before the square root, after the update: its running mean of "
    "squares (Adam: without bias correction; amsgrad: the maximum), or its sum (Adagrad)",
}

COLUMNS: Mapping[str, str] = {
    **{f"{kind}_{name}": f"{what}: {_OF_A_KIND[name]}" for kind, what in _WHAT.items() for name in EXACT},
    "gradient_zero_share": "share of gradient elements that are zero, sampled",
    "gradient_subnormal_share": "share of gradient elements that are not zero and smaller than the smallest normal "
    "number of the gradient's own dtype, loss scale included, sampled",
    "update_norm": "L2 norm of the weight after minus before the update, estimated from the sample: its RMS times the "
    "square root of the number of elements",
    "update_min": "smallest element of the update, sampled",
    "update_max": "largest element of the update, sampled",
    "update_mean": "mean of the update, sampled",
    "update_ratio": "norm of the update over norm of the weight after it, both over the sample",
    "unchanged_share": "of the elements whose gradient is finite and not zero, the share whose weight has the same "
    "bits after the update: lost updates, sampled",
    "gradient_to_second_moment": "RMS of g / max(sqrt(v), epsilon) with the gradient g and the second moment v after "
    "this update, bias-corrected where the optimizer does that; only where v is a running mean of squares; sampled. "
    "About 1 where v follows the gradient; v lags from 2.3 on (Wortsman et al. 2023, arXiv 2304.13013)",
    "gradient_rms_to_epsilon": "RMS of the gradient over the epsilon that stands beside sqrt(v), exact. Epsilon is "
    "taken as the dtype of the second moment holds it; not defined where that makes it zero",
}
"""Column -> meaning. All are plain numbers in the units of the tensor, or shares between 0 and 1."""
