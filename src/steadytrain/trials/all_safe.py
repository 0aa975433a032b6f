"""Everything in the safe way at once."""

from __future__ import annotations

from typing import final

from steadytrain.trials.case import Case
from steadytrain.trials.contract import Change, NotApplicable, Spec, Trial
from steadytrain.trials.planning import planned


@final
class AllSafe(Trial):
    """Everything in the safe way at once.

    Changes:
        float32, eager, plain attention, one thread.

    Tells:
        The whole branch of systems with one run: where the symptom stays, precision, compiler and kernels are out.

    Beware:
        Many changes at once; which one it was, the single ones tell.
    """

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        return planned(self, case, *(Change(kind) for kind in ("float32", "eager", "math-attention", "one-thread")))
