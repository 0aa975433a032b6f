from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from steadytrain.guard.intervention import ChangeIntervention

if TYPE_CHECKING:
    from steadytrain.trial_runs.changes import LiveChange


@final
@dataclass
class QkClip(ChangeIntervention):
    """Bound each head's largest attention score by its query and key weights.

    QK-clip (Kimi K2, arXiv 2507.20534): after an update, a head whose largest score s of the step exceeded ``limit``
    gets its query and key weights multiplied by sqrt(limit / s) each. Where heads share keys, the query weights alone
    are multiplied by limit / s. For nn.MultiheadAttention and modules with q_proj and k_proj (Hugging Face); not where
    queries and keys are normalized. It computes the scores once more than a fused attention does.

    Args:
        limit: the largest score.
    """

    limit: float = 100.0

    def check(self) -> None:
        self.change().check()

    def change(self) -> LiveChange:
        from steadytrain.trial_runs.changes.query_key_weights import ClipQueryKeyWeights

        return ClipQueryKeyWeights(self.limit)
