"""A draw that cuts the gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.detectors import SourceRule


@final
@dataclass(frozen=True)
class CutSample(SourceRule):
    """A code or an action is drawn without a gradient where the loss needs one.

    Means:
        `sample()` of a distribution of torch draws under `no_grad`: no gradient of what follows reaches mean and
        deviation. The encoder of a variational autoencoder learns from the divergence alone, which makes the code
        useless; the actor that a critic judges learns from its entropy alone. `rsample()` draws mean plus deviation
        times noise. This is read in the source; scores that a reward weighs need no gradient and are left alone.

    Causes:
        - `Normal(mu, std).sample()` where `rsample()` is meant

    Next:
        1. Draw with `rsample()`.
        2. Look at the gradient of the encoder's last layer with the divergence left out: it must not be zero.
    """

    kind: ClassVar[str] = "cut-sample"
    says: ClassVar[str] = (
        "draws with sample(), which passes no gradient: mean and deviation do not learn from what the draw leads to, "
        "and rsample() is meant"
    )
