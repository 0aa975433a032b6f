from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from steadytrain.guard.intervention import ChangeIntervention

if TYPE_CHECKING:
    from steadytrain.trial_runs.changes import LiveChange


@final
@dataclass
class Float32Norms(ChangeIntervention):
    """Compute normalizations and softmaxes in float32.

    The reference implementation of layer_norm, rms_norm, group_norm, softmax and log_softmax where they get 16 bits;
    results get that format again. Code that normalizes by operations of its own is not changed.
    """

    def change(self) -> LiveChange:
        from steadytrain.trial_runs.changes.float32_calls import Float32Norms as Norms

        return Norms()
