"""A state of the checkpoint that the resume does not read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, final

from steadytrain.core.model import Symptom, Window
from steadytrain.detectors import SourceRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class UnrestoredState(SourceRule):
    """A state that the checkpoint holds is never read by the resume, so it begins anew.

    Means:
        The source of the script saves the state of an object beside that of the optimizer, and reads the optimizer's
        back, but not this one: a schedule, a loss scaler, a random generator. After a resume the schedule begins again,
        or the same random batches come again. It is a note until this run was seen to load the state of its optimizer.

    Causes:
        - `load_state_dict` is missing for one of the saved objects
        - `"gen": gen.get_state()` is saved, and the generator is seeded anew at the start
        - two spellings of one key

    Next:
        1. Read back each state that is saved, and raise if a key is missing.
        2. Run `steadytrain preflight`: its check resume-equivalence compares a resumed run with one that went on.
    """

    kind: ClassVar[str] = "unrestored-state"
    says: ClassVar[str] = "saves a state that the resume never reads, though it reads the optimizer's: it begins anew"

    def check(self, window: Window) -> tuple[Symptom, ...]:
        resumed = bool(script_rows(window, "moments-given"))
        return tuple(one if resumed else replace(one, severity="note") for one in super().check(window))
