from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from steadytrain.guard.intervention import ChangeIntervention

if TYPE_CHECKING:
    from steadytrain.trial_runs.changes import LiveChange


@final
@dataclass
class ClipPerTensor(ChangeIntervention):
    """Clip each tensor's gradient relative to the average of its own norms.

    AdaGC (Wang et al. 2025, arXiv 2502.11034): for ``warm_up`` steps one global norm bounds all gradients, then each
    tensor is clipped at ``factor`` times the moving average of its clipped norms. The averages are one number a tensor,
    on its device; no step waits for them. A gradient of zeros changes no average, unlike in the paper.

    Args:
        factor: lambda_rel of the paper.
        decay: of the average; beta of the paper.
        warm_up: steps with a global clip.
        level: the norm of that clip; 0 for what is usual in this run, or 1 where it has shown none.
    """

    factor: float = 1.05
    decay: float = 0.98
    warm_up: int = 100
    level: float = 0.0

    def check(self) -> None:
        self.change().check()

    def change(self) -> LiveChange:
        from steadytrain.trial_runs.changes.adaptive_clips import ClipPerTensor as Clip

        return Clip(self.factor, self.decay, self.warm_up, self.level)
