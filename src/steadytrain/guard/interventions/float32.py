from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from steadytrain.guard.intervention import ChangeIntervention

if TYPE_CHECKING:
    from steadytrain.trial_runs.changes import LiveChange


@final
@dataclass
class Float32(ChangeIntervention):
    """Compute the model, or one module, in float32 in place of autocast.

    The call of the module runs without autocast, and its 16-bit inputs are widened. Its weights must be in float32:
    a run that goes on keeps their format, so 16 bits are refused. A compiled model is refused too.

    Args:
        module: its dotted name, with ``*`` as a wildcard; empty for the whole model.
    """

    module: str = ""

    def change(self) -> LiveChange:
        from steadytrain.trial_runs.changes.float32_calls import Float32Calls

        return Float32Calls([self.module] if self.module else [])
