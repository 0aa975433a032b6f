from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from steadytrain.guard.intervention import ChangeIntervention

if TYPE_CHECKING:
    from steadytrain.trial_runs.changes import LiveChange


@final
@dataclass
class ShrinkEmbeddingGradient(ChangeIntervention):
    """Multiply the gradient of what embeddings look up by a share.

    After GLM-130B (Zeng et al. 2022, arXiv 2210.02414), whose embeddings are share * out + (1 - share) * out.detach().
    The forward keeps its bits here. A weight tied to the head keeps the head's part of its gradient. Adam and other
    optimizers that normalize undo a constant factor after some steps; a spike is then still spread over more of them.

    Args:
        share: what remains of the gradient.
    """

    share: float = 0.1

    def check(self) -> None:
        self.change().check()

    def change(self) -> LiveChange:
        from steadytrain.trial_runs.changes.embeddings import ShrinkEmbeddingGradient as Shrink

        return Shrink(self.share)
