"""One file per cause, found by walking this package (``cause_catalog``).

| file | what it is |
|---|---|
| ``contract`` | what a cause promises: signature, expectations of trials, proof, interventions |
| ``catalog`` | finds causes and reads their docstrings |
| ``table`` | what each trial does to each kind of cause, in one table |
| ``signs`` | how a cause reads a case |
| ``interventions`` | changes that may mend it, fast to invasive |

Causes do not know each other; they name their rivals. Weighing them is ``steadytrain.diagnosis``.
"""

from __future__ import annotations

from steadytrain.diagnosis.cause import Cause, Intervention, Sign, Signature

__all__ = ["Cause", "Intervention", "Sign", "Signature"]

"""The files of this package that are no causes."""
