from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

from steadytrain.guard.intervention import ChangeIntervention

if TYPE_CHECKING:
    from steadytrain.trial_runs.changes import LiveChange


@final
@dataclass
class ClipByZScore(ChangeIntervention):
    """Clip the global gradient norm where it is an outlier among the last ones.

    ZClip (Kumar et al. 2025, arXiv 2504.02507), reciprocal form: mean m and standard deviation s of the clipped norms
    are moving averages; a norm with z = (norm - m) / s above ``z_max`` is clipped at m + s * z_max**2 / z. It uses the
    norm that the gate has measured and costs nothing more. The last healthy norms of the run are its warm-up.

    Args:
        z_max: from which z on a norm is clipped. 2.5 also clips 1 to 3 % of healthy steps, a little.
        decay: of mean and variance; alpha of the paper.
        warm_up: norms from which the first mean and variance are taken.
    """

    z_max: float = 2.5
    decay: float = 0.97
    warm_up: int = 25
    replayed: ClassVar[bool] = True

    def check(self) -> None:
        self.change().check()

    def change(self) -> LiveChange:
        from steadytrain.trial_runs.changes.adaptive_clips import ClipByZScore as Clip

        return Clip(self.z_max, self.decay, self.warm_up)
