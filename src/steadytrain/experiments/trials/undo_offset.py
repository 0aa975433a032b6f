"""Token ids without the constant that was added to them."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class UndoOffset(Trial):
    """Token ids without the constant that was added to them.

    Changes:
        From the onset on the ids of the model's inputs are less by the constant that the survey found, and so are the
        targets where they are tokens.

    Tells:
        Ids that are off by a constant: with the old ones the same text is as easy as before.

    Beware:
        The ids that fall below zero become 0.
    """

    axis = "data"

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        found = case.facts.get("token_offset")
        if not isinstance(found, list) or not found:
            return NotApplicable("the ids are not off by a constant, or no survey ran")
        tokens = isinstance(case.facts.get("label_shift_trained"), int)
        values = {"offset": int(found[0]), "since": case.onset, "targets": tokens}
        return planned(self, case, Change("offset-tokens", values))
