"""One term of the loss set to zero."""

from __future__ import annotations

from dataclasses import replace
from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial

TERMS_TRIED = 3
"""Number of loss functions that are tried if their number is unknown."""


@final
class LossTermZero(Trial):
    """One term of the loss set to zero.

    Changes:
        One run for each loss function that a step calls, with that loss set to zero.

    Tells:
        Which term of several drives the symptom.

    Beware:
        It does not cover terms that the script computes without a loss function.
    """

    axis = "loss"
    removes = "transient"
    either = "data rate moments state logits half kernel ranks shift operation script"
    other_loss = True

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        functions = case.facts.get("loss_functions")
        terms = len(functions) if isinstance(functions, list) and functions else TERMS_TRIED
        specs = []
        for number in range(min(terms, TERMS_TRIED)):
            made = planned(self, case, Change("loss-term-zero", {"number": number}))
            if isinstance(made, NotApplicable):
                return made
            specs += [replace(spec, repeat=number) for spec in made]
        return tuple(specs)
