"""A variance that is what rounding leaves of two squares."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, Cause, Intervention, Sign, Signature
from steadytrain.diagnosis.signs import Signs, ruled_out, surveyed
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class CancelledVariance(Cause):
    """A variance is the mean of squares less the square of the mean, and rounding is most of what is left.

    Means:
        Where the mean is some thousands of times the deviation, both terms agree in all digits that float32 holds. The
        difference is zero, negative or a multiple of the distance between neighbouring numbers. A scale made of it is
        far too large or too small: normalised features explode or vanish, and clamped ones are noise.

    Causes:
        - running sums of `x` and `x**2` of a column with a large offset: a pressure in Pa, a price, a year
        - `E[x**2] - E[x]**2` of features that were never centred
        - differences of cumulative sums as rolling statistics

    Next:
        1. Take the mean off first: `(x - x.mean(0)).square().mean(0)`, `x.var(0)`, or Welford's update of running sums.
        2. Or keep the sums in float64, and convert the deviation.
        3. Compare both deviations once, column by column.
    """

    axis = "precision"
    base_rate = 6.0
    rivals = ("dead-units", "input-scale", "amplifying-operation")
    expects = like("script", either=("clip-usual",))
    interventions = (
        Intervention(
            "centre-first",
            1,
            "take the mean off before the squares, or keep the sums in float64",
            code="variance = (x - x.mean(0)).square().mean(0)",
        ),
    )
    grade = "A"
    source = "Chan, Golub and LeVeque (1983), Algorithms for computing the sample variance; Welford (1962)"

    def signature(self, case: Case) -> Signature:
        found = _found(case)
        return Signature(
            (*found, *ruled_out(surveyed(case) and not found, "no variance is left of squares that cancel"))
        )


def _found(case: Case) -> Signs:
    found = case.entries("cancelled_variances")
    if not found:
        return ()
    first = found[0]
    place, _, code = str(first["line"]).partition(": ")
    said = (
        f"the variance at {place} (`{code}`) is a difference of squares near {first['largest']:,.4g} in "
        f"{first['dtype']}, whose neighbours are {first['distance']:.3g} apart, and {first['left']:.3g} is left: the "
        "squares cancel, and rounding decides the scale"
    )
    return (Sign(said, CERTAIN, "fact cancelled_variances", {"step": float(first["step"])}, invariant=True),)
