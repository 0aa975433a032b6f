"""Everything in the safe way at once."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


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
