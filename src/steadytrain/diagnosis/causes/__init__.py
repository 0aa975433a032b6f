"""One file per cause: its signs, the expected effect of each trial, its proof and its fixes.

Causes do not import each other; ``diagnosis.weighing`` weighs them.
"""

from __future__ import annotations

from steadytrain.diagnosis.cause import Cause, Intervention, Sign, Signature

__all__ = ["Cause", "Intervention", "Sign", "Signature"]
