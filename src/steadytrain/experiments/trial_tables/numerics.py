"""Trials that compute the same in another way: format, compiler, kernels, threads, operations kept in range."""

from __future__ import annotations

from steadytrain.experiments.specs import Change
from steadytrain.experiments.trial import Trial
from steadytrain.experiments.trial_rows import OneChange

ROWS: tuple[Trial, ...] = (
    OneChange(
        "all-safe",
        "Everything in the safe way at once.",
        changes="float32, eager, plain attention, one thread.",
        tells=(
            "The whole branch of systems with one run: where the symptom stays, precision, compiler and kernels are "
            "out."
        ),
        beware="Many changes at once; which one it was, the single ones tell.",
        makes=tuple(Change(kind) for kind in ("float32", "eager", "math-attention", "one-thread")),
        removes="half kernel transient",
        either="logits ranks operation",
        alike="numerics",
    ),
    OneChange(
        "bfloat16",
        "bfloat16 in the place of float16.",
        changes="Autocast, weights, moments and inputs in float16 become bfloat16.",
        tells="The range of float16: overflow and underflow.",
        beware="bfloat16 has three bits fewer, so what rounding does gets worse.",
        makes=(Change("bfloat16-for-float16"),),
        removes="half transient",
        either="logits kernel",
        alike="numerics",
    ),
    OneChange(
        "master-weights",
        "Weights kept in float32 beside those of 16 bits.",
        changes="The optimizer works on float32 copies; the model sees them rounded.",
        tells="Updates that are lost by rounding.",
        beware="As float32, but for weights only.",
        makes=(Change("master-weights"),),
    ),
    OneChange(
        "float64-loss",
        "Losses in float64.",
        changes="torch's loss functions compute in float64.",
        tells="A loss that loses its digits: large logits, sums over many tokens.",
        beware="Losses that the script writes out itself stay.",
        makes=(Change("float64-loss"),),
        removes="transient",
        either="half operation",
    ),
    OneChange(
        "eager",
        "Without compilation.",
        changes="What torch.compile compiled runs as plain Python.",
        tells="Compiled code that computes something else.",
        beware="Other rounding everywhere, as fused operations come apart.",
        makes=(Change("eager"),),
        removes="kernel transient",
        either="half",
        alike="numerics",
    ),
    OneChange(
        "math-attention",
        "Attention by plain operations.",
        changes="scaled_dot_product_attention by matrix products and a softmax.",
        tells="A fused kernel that fails or is not repeatable.",
        beware="Other rounding in attention; more memory.",
        makes=(Change("math-attention"),),
        removes="kernel transient",
        either="half operation",
        alike="numerics",
    ),
    OneChange(
        "deterministic",
        "Operations in their deterministic form.",
        changes="torch.use_deterministic_algorithms.",
        tells="A symptom that comes and goes with the order of sums.",
        beware="Slower; operations without such a form only warn.",
        makes=(Change("deterministic"),),
        removes="transient",
        either="half kernel",
    ),
    OneChange(
        "one-thread",
        "Operations on one thread.",
        changes="torch runs on one thread of the CPU.",
        tells="Sums whose order hangs on threads.",
        beware="Slower.",
        makes=(Change("one-thread"),),
        removes="kernel transient",
        either="half",
        alike="numerics",
    ),
    OneChange(
        "safe-operation",
        "Operations keep away from their singular points.",
        changes=(
            "log, sqrt, division, acos and their kin get operands at least 1e-6 away from where they are not finite; "
            "exp does not overflow."
        ),
        tells="An operation at its singular point: log(0), sqrt(0), a division by zero.",
        beware="Slower: every call is looked at. A sum that is empty by mistake stays a mistake.",
        makes=(Change("safe-operation"),),
        removes="transient operation",
    ),
    OneChange(
        "safe-softmax",
        "Rows that are masked as a whole give zeros.",
        changes="A softmax over nothing but minus infinity gives zeros and no gradient.",
        tells="Fully masked attention rows.",
        beware="None: it is the same where no row is masked as a whole.",
        makes=(Change("safe-softmax"),),
    ),
)
