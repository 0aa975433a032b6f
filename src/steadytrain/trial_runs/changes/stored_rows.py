"""Data sets whose rows stay as they are."""

from __future__ import annotations

import copy
import functools
from dataclasses import dataclass
from typing import Any, final

from steadytrain.survey.stored_rows import kept
from steadytrain.trial_runs.changes import LiveChange
from steadytrain.trial_runs.launched_script import Launched
from steadytrain.trial_runs.loader_reads import wrap_reads


@final
@dataclass
class KeepRows(LiveChange):
    """Rows of a map-style data set are put back after each read, if the read changed them."""

    is_early = True
    own_batches = True
    nothing = "no row of a data set changed when it was read"

    def early(self, process: Launched) -> None:
        wrap_reads(self._reading)

    def _reading(self, original: Any) -> Any:
        @functools.wraps(original)
        def read(dataset: Any, row: Any) -> Any:
            put_back = kept(dataset, [int(row)])
            item = copy.deepcopy(original(dataset, row))
            if put_back():
                self.touch()
            return item

        return read
