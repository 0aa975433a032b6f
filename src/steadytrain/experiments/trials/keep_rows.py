"""Stored rows that keep their values."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import from_the_beginning
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class KeepRows(Trial):
    """Rows of the data set keep their values when they are read.

    Changes:
        From the script's own beginning each row is copied before the data set reads it, and put back afterwards; the
        script gets what was read.

    Tells:
        An augmentation or a scaling that overwrites the rows of the data set, so that later epochs differ.

    Beware:
        Other random batches than those recorded, if the script draws them without a seed.
    """

    axis = "data"

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        told = any(one.name == "overwritten-rows" for one in case.symptoms)
        if not told and not isinstance(case.facts.get("rows_change_when_read"), dict):
            return NotApplicable("no data set was seen to overwrite a row that it reads, or no survey ran")
        return from_the_beginning(self, case, Change("keep-rows"))
