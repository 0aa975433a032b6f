"""Trials that compute the same in another way: dtype, compiler, kernels, threads, operations kept in range."""

from __future__ import annotations

from steadytrain.experiments.specs import Change
from steadytrain.experiments.trial import Trial
from steadytrain.experiments.trial_rows import OneChange

ROWS: tuple[Trial, ...] = (
    OneChange(
        "all-safe",
        "All safe settings at once.",
        changes="float32, eager, plain attention, one thread.",
        tells=("All system causes in one run: if the symptom stays, precision, compiler and kernels are ruled out."),
        beware="Many changes at once; the single trials show which one matters.",
        makes=tuple(Change(kind) for kind in ("float32", "eager", "math-attention", "one-thread")),
        removes="half kernel transient",
        either="logits ranks operation",
        alike="numerics",
        group_test=True,
    ),
    OneChange(
        "bfloat16",
        "bfloat16 in place of float16.",
        changes="Autocast, weights, moments and inputs in float16 become bfloat16.",
        tells="The range of float16: overflow and underflow.",
        beware="bfloat16 has three bits fewer, so rounding gets worse.",
        makes=(Change("bfloat16-for-float16"),),
        removes="half transient",
        either="logits kernel",
        alike="numerics",
    ),
    OneChange(
        "master-weights",
        "A float32 copy of 16-bit weights.",
        changes="The optimizer works on float32 copies; the model sees them rounded.",
        tells="Updates lost by rounding.",
        beware="As float32, but for weights only.",
        makes=(Change("master-weights"),),
    ),
    OneChange(
        "float64-loss",
        "Losses in float64.",
        changes="torch's loss functions compute in float64.",
        tells="A loss that loses precision: large logits, sums over many tokens.",
        beware="Losses that the script computes itself do not change.",
        makes=(Change("float64-loss"),),
        removes="transient",
        either="half operation",
    ),
    OneChange(
        "eager",
        "Without compilation.",
        changes="Code compiled by torch.compile runs as plain Python.",
        tells="Compiled code that computes a different result.",
        beware="Rounding changes everywhere, because fused operations are split.",
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
        tells="A symptom that depends on the order of sums.",
        beware="Slower; operations without such a form only warn.",
        makes=(Change("deterministic"),),
        removes="transient",
        either="half kernel",
    ),
    OneChange(
        "one-thread",
        "Operations on one thread.",
        changes="torch runs on one thread of the CPU.",
        tells="Sums whose order depends on threads.",
        beware="Slower.",
        makes=(Change("one-thread"),),
        removes="kernel transient",
        either="half",
        alike="numerics",
    ),
    OneChange(
        "safe-operation",
        "Operations kept away from their singular points.",
        changes=(
            "log, sqrt, division, acos and their kin get operands at least 1e-6 away from where they are not finite; "
            "exp does not overflow."
        ),
        tells="An operation at its singular point: log(0), sqrt(0), a division by zero.",
        beware="Slower: it checks every call. A sum that is empty by mistake stays a mistake.",
        makes=(Change("safe-operation"),),
        removes="transient operation",
    ),
    OneChange(
        "safe-softmax",
        "Fully masked rows give zeros.",
        changes="A softmax over only minus infinity gives zeros and no gradient.",
        tells="Fully masked attention rows.",
        beware="None: without fully masked rows nothing changes.",
        makes=(Change("safe-softmax"),),
    ),
)
