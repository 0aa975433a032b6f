"""Numbers that the script changed near the onset keep their old values."""

from __future__ import annotations

import json
from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class OldSettings(Trial):
    """Numbers that the script changed near the onset keep their old values.

    Changes:
        Options of the optimizer (other than the rate), numbers that modules hold and numbers in operations of the
        script that the survey saw change near the onset: each is put back to what it was before.

    Tells:
        A weight of a loss, a temperature, a dropout or a weight decay that was raised or annealed too far.

    Beware:
        All such numbers are put back together.
    """

    removes = "transient"
    either = "data rate moments state logits half shift operation script"

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        found = case.facts.get("settings_changed")
        if not isinstance(found, list) or not found:
            return NotApplicable("no plain number of the script was seen to change near the onset")
        settings = [json.dumps(one, sort_keys=True) for one in found]
        return planned(self, case, Change("old-settings", {"settings": settings}))
