"""A derivative in the loss carries no gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.detectors import SourceRule


@final
@dataclass(frozen=True)
class ConstantPenalty(SourceRule):
    """A derivative in the loss carries no gradient.

    Means:
        The source of the script takes a derivative by `torch.autograd.grad` without `create_graph=True` and adds a term
        of it to the loss. The backward takes that term for a constant: a gradient penalty then penalises nothing, and a
        differential equation pulls at everything but its derivative.

    Causes:
        - a gradient penalty (WGAN-GP, R1), a force or a residual of a differential equation without `create_graph=True`

    Next:
        1. Pass `create_graph=True`.
        2. Look whether the term falls while its weight is raised.
    """

    kind: ClassVar[str] = "constant-penalty"
    says: ClassVar[str] = "takes a derivative without create_graph=True: what is made of it in the loss has no gradient"
