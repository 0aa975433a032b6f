"""Gradients clipped at the largest norm that was usual before."""

from __future__ import annotations

from typing import final

import numpy as np

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial
from steadytrain.experiments.trial_starts import START

USUAL_SHARE = 0.9
"""Share of the steps before the onset whose gradients stay as they were."""

CUSTOMARY_NORM = 1.0
"""The limit of most published recipes (GPT-3, 2005.14165; LLaMA, 2302.13971), where no usual norm is known yet."""


@final
class ClipUsual(Trial):
    """Gradients clipped at the largest norm that was usual before.

    Changes:
        The global norm of all gradients is at most that of nine in ten steps before the onset. In the script's first
        steps no norm is usual yet: there it is at most 1.

    Tells:
        Whether rare, long gradients do the harm: usual steps stay as they were, unlike under a lower rate.

    Beware:
        It hides a bad batch, too: compare with drop-batch. A lower rate may help as well.
    """

    removes = "transient"
    either = "data rate moments state logits half shift operation script"
    alike = "smaller steps"

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        series = case.window.series("gradient_norm")
        before = series.values[(series.steps < case.onset) & np.isfinite(series.values)]
        norm = float(np.quantile(before, USUAL_SHARE)) if len(before) else 0.0
        if case.begin == START:
            norm = CUSTOMARY_NORM
        if norm <= 0:
            return NotApplicable("the gradient norm before the onset is not known")
        return planned(self, case, Change("clip-gradients", {"max_norm": norm}))
