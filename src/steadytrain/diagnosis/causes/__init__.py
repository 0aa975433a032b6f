"""One file per cause: its signs, what each trial would do, what proves it, and what fixes it.

Causes do not import each other; weighing them is ``diagnosis.weighing``.
"""

from __future__ import annotations

from steadytrain.diagnosis.cause import Cause, Intervention, Sign, Signature

__all__ = ["Cause", "Intervention", "Sign", "Signature"]
