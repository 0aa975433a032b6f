"""Stored data that the training itself changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, HINT, Cause, Intervention, Signature
from steadytrain.diagnosis.row_signs import overwritten
from steadytrain.diagnosis.signs import ruled_out, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class OverwrittenRows(Cause):
    """Reading or using a row overwrites it in place, so that the next epoch trains on other data than the first.

    Means:
        An augmentation, a scaling or a first layer that works in place on a view changes the stored rows themselves.
        The first epoch looks as it should; in each later one the changes add up, until rows are noise, zero or
        saturated. The data on the disk stay sound.

    Causes:
        - `image = self.images[i]; image.mul_(gain)`: indexing a tensor or an array gives a view, no copy
        - `x = data[i : i + n]; x -= x.mean()`: the same in a loop without a loader
        - an environment that returns the state that it goes on changing, to a buffer that keeps it
        - `nn.ReLU(inplace=True)` as the first layer, on a slice of the data

    Next:
        1. Clone the row before it is changed.
        2. Read one row twice with the same seed, and compare.
        3. Compare a sum over the data set at the start and after an epoch.
    """

    axis = "data"
    base_rate = 2.0
    rivals = ("data-shift", "bad-batch", "learning-rate-too-high", "unshuffled-data")
    expects = like("shift", removed=("keep-rows",))
    confirming = ("keep-rows",)
    spared = ("drop-batch", "float32")
    interventions = (
        Intervention(
            "clone-rows",
            4,
            "clone a row before it is changed",
            "keep-rows",
            code="row = self.rows[index].clone()  # .copy() of an array",
        ),
        Intervention(
            "return-copies",
            4,
            "return a copy of the state",
            code="return self.state.copy()",
            of=("shared-state",),
        ),
    )
    grade = "A"
    source = "the indexing rules of PyTorch and NumPy (basic indexing returns views)"

    def signature(self, case: Case) -> Signature:
        seen = overwritten(case, CERTAIN, invariant=True)
        said = symptom(case, CERTAIN, "overwritten-rows", "shared-state", invariant=True)
        return Signature(
            (
                *seen,
                *said,
                *symptom(case, HINT, "divergence", "loss-spike", "lost-progress", "plateau"),
                *ruled_out(not (seen or said), "no stored row was seen to change"),
            )
        )
