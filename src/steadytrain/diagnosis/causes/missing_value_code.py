"""A code for missing values among the data."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, Cause, Intervention, Signature
from steadytrain.diagnosis.interventions import CLEAN_ROWS
from steadytrain.diagnosis.row_signs import missing_code
from steadytrain.diagnosis.signs import quiet, rows_of, ruled_out, surveyed
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class MissingValueCode(Cause):
    """A code for missing values, such as the sentinel -999, is fed to the model or the loss as if it were measured.

    Means:
        Files and sensors mark what is missing by a number that cannot be measured: -999, -9999, 1e20. If it is not
        taken out, a few values are hundreds of times as large as all others, and so is their gradient. Means and
        standard deviations that were computed with it are wrong as well.

    Causes:
        - a reader without `na_values`; another file or station with another code
        - a join or a resampling that fills gaps with a number

    Next:
        1. Count the most extreme values of each column: a code stands there many times, exactly equal.
        2. Read it as missing (`na_values`), fill inputs, and leave such targets out of the loss.
        3. Compute means and standard deviations again, without it.
    """

    axis = "data"
    base_rate = 6.0
    rivals = ("bad-batch", "data-shift", "input-scale", "learning-rate-too-high", "unclipped-gradients")
    expects = like("shift", removed=("fill-codes",), either=("drop-batch", "fresh-data", "inputs-as-before"))
    confirming = ("fill-codes",)
    spared = ("float32", "beta2-lower")
    interventions = (
        Intervention(
            "fill-codes",
            3,
            "treat the code as missing: fill it in inputs, leave it out of targets",
            "fill-codes",
            code="table = pandas.read_csv(path, na_values=[-999])  # then fill inputs, and mask such targets",
        ),
        CLEAN_ROWS,
    )
    grade = "B"
    source = "documentation of pandas.read_csv (na_values); the NetCDF conventions (_FillValue, missing_value)"

    def signature(self, case: Case) -> Signature:
        found = missing_code(case, CERTAIN)
        return Signature(
            (
                *found,
                *ruled_out(surveyed(case) and not found, "no value is repeated far beyond all others"),
                *ruled_out(quiet(case), "no symptom above a note was seen", "symptoms"),
            ),
            batch_rows=rows_of(case),
        )
