"""An activation without the curvature that the loss needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import not_finite, ruled_out, seen, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class PiecewiseActivation(Cause):
    """The loss needs second derivatives, and the activations are ReLUs: those derivatives are zero.

    Means:
        A network of ReLUs is linear in pieces. Its first derivative is a step and its second one is zero almost
        everywhere, so a differential equation with a second derivative loses that term: the residual falls, and the
        solution is wrong.

    Causes:
        - a physics-informed network, or a loss with a Laplacian or a Hessian, whose activation is `nn.ReLU`

    Next:
        1. Replace the activation by tanh, sine or SiLU.
        2. Compare the second derivative with that of a known solution.
    """

    axis = "model"
    base_rate = 2.0
    rivals = ("bad-initialization", "learning-rate-too-low", "loss-function-misuse", "missing-activation")
    expects = like("script")
    spared = ("drop-batch", "float32")
    interventions = (
        Intervention(
            "smooth-activation",
            5,
            "an activation with derivatives of all orders in place of the ReLU",
            code="nn.Tanh()  # or nn.SiLU(), or torch.sin",
        ),
    )
    grade = "A"
    source = "Raissi, Perdikaris and Karniadakis, Physics-informed neural networks (2019), J. Comput. Phys. 378"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *symptom(case, CERTAIN, "flat-derivative", invariant=True),
                *ruled_out(seen(case, "flat-derivative") is None, "no second derivative of a ReLU network was seen"),
                *ruled_out(not_finite(case), "a derivative that is zero makes nothing infinite", "symptoms"),
            )
        )
