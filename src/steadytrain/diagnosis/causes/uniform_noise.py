"""Noise of the wrong distribution."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import ruled_out, seen, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class UniformNoise(Cause):
    """Noise is drawn uniformly between 0 and 1 instead of from a standard normal distribution.

    Means:
        The schedule of a diffusion model mixes data with noise of mean 0 and variance 1, and its sampler begins with
        such noise. Uniform noise has the mean 0.5 and a twelfth of the variance. The model learns to predict it, the
        loss falls even lower, and the samples are wrong.

    Causes:
        - `torch.rand_like` (or `torch.rand`) where `torch.randn_like` is meant, for the noise of a diffusion model or
          the code of a variational autoencoder

    Next:
        1. Draw the noise with `torch.randn_like`.
        2. Sample from the mended model: the loss alone does not show the difference.
    """

    axis = "data"
    base_rate = 1.0
    rivals = ("unrelated-noise",)
    expects = like("script")
    spared = ("drop-batch", "float32")
    interventions = (
        Intervention(
            "normal-noise",
            5,
            "draw standard normal noise",
            code="noise = torch.randn_like(x0)",
        ),
    )
    grade = "A"
    source = "2006.11239, algorithm 1"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *symptom(case, CERTAIN, "uniform-noise", "uniform-code", invariant=True),
                *ruled_out(seen(case, "uniform-noise", "uniform-code") is None, "no noise is uniform"),
            )
        )
