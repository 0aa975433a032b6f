"""Initial weights with which layers keep the size of their signal."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial

FADED = 1e-2
"""RMS of the last layer's output over that of the first's, at the first step: less, and depth lost the signal."""


@final
class HeInitialization(Trial):
    """Weights drawn anew, so that layers with a ReLU behind them keep the size of their signal.

    Changes:
        The weights of linear layers and convolutions are drawn from a normal with variance 2 / fan-in (He et al.,
        1502.01852), their biases are 0; all other torch modules initialise again with their default. Moments are
        cleared.

    Tells:
        Initial weights so small, for that depth, that nothing reaches the last layer.

    Beware:
        The model loses everything that it learned. torch's own default shrinks the signal by 0.41 a layer with a ReLU.
    """

    removes = "transient"
    either = "data rate moments state logits half kernel ranks shift operation script"
    own_scale = True
    axis = "model"

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        ratio = case.facts.get("activation_ratio")
        if not isinstance(ratio, int | float):
            return NotApplicable("the size of the outputs over depth was not measured")
        if not 0 < ratio < FADED:
            return NotApplicable(f"the last layer's output is {ratio:.2g} times the first's: the signal gets through")
        return planned(self, case, Change("reinitialize", {"he": True}))
