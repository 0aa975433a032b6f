"""Changes of copies that nobody reads, written back into what was copied."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import from_the_beginning
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class KeptChanges(Trial):
    """Changes of copies that nobody reads, written back into what was copied.

    Changes:
        At the lines that change a copy in place and throw it away, the changed copy is written back: into the tensor
        that `reshape`, `contiguous` or `to` copied, or to the places that an index or a mask took. All else stays. The
        script runs from its own beginning, because what was not changed may have been wrong since then.

    Tells:
        Whether the script needs the change that it means to make: a state that is reset, entries that are cleared, a
        mask that is applied.

    Beware:
        A line that changes a scratch copy on purpose changes its original then. The loss may well be worse.
    """

    axis = "model"

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        found = case.entries("discarded_writes")
        if not found:
            return NotApplicable("no change of a copy is thrown away, or no survey ran")
        keys = {"lines": "line", "by": "by", "copied": "copied", "copy_lines": "copy_line"}
        told = {name: [str(one[key]) for one in found] for name, key in keys.items()}
        return from_the_beginning(self, case, Change("kept-changes", told))
