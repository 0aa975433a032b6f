"""New training that overwrites the old."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, Cause, Signature
from steadytrain.diagnosis.interventions import FRESH_DATA, LONGER_WARMUP, LOWER_RATE
from steadytrain.diagnosis.signs import noted, ruled_out, seen, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class Forgetting(Cause):
    """Training on new data destroys what the model learned before.

    Means:
        The loss on the new data falls while that on the old rises and stays high. With a few percent of old data in
        each batch it does not rise. A rise right after the rate is warmed up again is temporary (2308.04014).

    Causes:
        - finetuning on one domain without old data; too many steps or too high a rate
        - a learning rate that is warmed up again to the full peak

    Next:
        1. Mix in 1 to 5 percent of old data.
        2. A smaller peak, a longer warm-up.
        3. Log the loss on old data separately.
    """

    axis = "data"
    base_rate = 3.0
    rivals = ("data-shift", "unshuffled-data", "stale-optimizer-state")
    expects = like("shift")
    confirming = ("fresh-data",)
    spared = ("drop-batch", "float32")
    interventions = (LOWER_RATE, LONGER_WARMUP, FRESH_DATA)
    grade = "A"
    source = "2308.04014; 2403.08763"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *symptom(case, CERTAIN, "forgetting"),
                *ruled_out(
                    seen(case, "forgetting") is None and noted(case, "forgetting") is None,
                    "no score on old data was seen to fall",
                    "symptoms",
                ),
            ),
        )
