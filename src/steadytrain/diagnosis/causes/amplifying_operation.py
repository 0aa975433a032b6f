"""A division by nearly 0, an exponential, a power: large numbers out of ordinary ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.amplified_signs import amplified, amplifies
from steadytrain.diagnosis.cause import CERTAIN, HINT, STRONG, Cause, Intervention, Signature
from steadytrain.diagnosis.setting_signs import changed_settings
from steadytrain.diagnosis.signs import not_finite, quiet, ruled_out, surveyed, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class AmplifyingOperation(Cause):
    """One line makes huge finite numbers: a division by nearly 0, an exponential, a power.

    Means:
        What goes into the line is as before, what comes out is many times as large. A divisor came close to 0 without
        reaching it: a standard deviation, a norm, a count, a time difference. Or an exponent grew. The loss jumps, and
        the gradient with it. The data themselves need not be odd.

    Causes:
        - a running variance as E[x^2] - E[x]^2 in float32, which cancels, and a floor of 1e-6 or 1e-8 under it
        - a batch, a feature or a reward that hardly varies, divided by its own standard deviation
        - time differences, distances, degrees or probabilities that come close to 0
        - importance ratios and variances as exp of an unlimited number

    Next:
        1. Go to the named line, and print the smallest divisor or the largest exponent of each step.
        2. Put a floor under the divisor that is of the size of ordinary ones; limit the exponent.
        3. Keep running sums in float64, or update mean and variance as Welford did.
    """

    axis = "loss"
    base_rate = 8.0
    rivals = (
        "bad-batch",
        "data-shift",
        "learning-rate-too-high",
        "second-moment-lag",
        "singular-operation",
        "changed-setting",
        "unclipped-gradients",
    )
    expects = like(
        "operation",
        either=("drop-batch", "fresh-data", "keep-rows", "safe-operation", "clip-usual"),
        removed=("operation-as-before",),
    )
    evidence = ("fact amplified",)
    confirming = ("operation-as-before", "inputs-as-before")
    spared = ("float32", "beta2-lower")
    interventions = (
        Intervention(
            "limit-operation",
            5,
            "limit what the named line makes: a floor under its divisor, a bound on its exponent",
            "operation-as-before",
            code="a / b.clamp(min=0.01)  # a floor of the size of ordinary divisors; torch.exp(x.clamp(max=10))",
        ),
        Intervention(
            "limit-prepared-inputs",
            4,
            "limit the prepared inputs, or put a floor under the divisor",
            "inputs-as-before",
            code="x = ((x - mean) / std.clamp(min=0.01)).clamp(-10, 10)  # and sums for mean and std in float64",
        ),
    )
    grade = "C"
    source = "VecNormalize of stable-baselines3 (epsilon, clip_obs); Welford 1962"

    def signature(self, case: Case) -> Signature:
        nonfinite, found = not_finite(case), amplified(case)
        return Signature(
            (
                *amplifies(case, STRONG if nonfinite else CERTAIN),
                *symptom(case, HINT, "loss-spike", "gradient-norm-spike", "lost-progress", "divergence"),
                *changed_settings(case, "other", -STRONG),
                *ruled_out(surveyed(case) and found is None, "no line of the script made far larger numbers"),
                *ruled_out(quiet(case), "no symptom above a note was seen", "symptoms"),
            ),
            axis="data" if found is not None and found.get("before_model") else "",
        )
