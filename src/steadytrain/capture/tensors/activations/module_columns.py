"""The columns of the table "modules" and their meanings."""

from __future__ import annotations

from collections.abc import Mapping

COLUMNS: Mapping[str, str] = {
    "mean": "mean of the output",
    "std": "standard deviation of the output (from a sample where the mean is more than 30 times as large)",
    "abs_max": "largest magnitude of the output",
    "kurtosis": "fourth central moment over the squared variance, 3 for a normal distribution; from a sample",
    "zero_share": "share of elements that are exactly zero; from a sample (of all elements where a Triton kernel runs)",
    "nonfinite": "elements that are NaN or Inf",
    "headroom": "abs_max over the largest number of the output's dtype: beyond 1 it overflows",
    "dtype": "the output's dtype, as its position in DTYPES",
    "attention_entropy": "entropy of attention in nats, mean over heads and sampled queries",
    "attention_entropy_min": "the same of the head where it is lowest",
    "attention_logit_max": "largest input of attention's softmax (scaled, bias included) among sampled queries",
    "log_z_mean": "logsumexp of the model's logits, mean over sampled rows (row '' only)",
    "log_z_max": "the same, largest sampled row",
}
"""Column -> meaning, for the first floating-point tensor in a module's output, in the training calls before the first
backward of the step.

Statistics cover all finite elements unless a meaning says otherwise. A module with several calls has one row: mean and
std of all outputs together, the average of kurtosis and zero share over the calls, the largest maximum, and the sum of
the counts.
"""

DTYPES: tuple[str, ...] = (
    "float64",
    "float32",
    "bfloat16",
    "float16",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
)
"""The dtypes that the numbers in the column "dtype" stand for."""
