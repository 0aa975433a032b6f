"""Signs from what the script itself computed, outside of its model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steadytrain.diagnosis.signs import fact

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


def made_by_script(case: Case) -> str:
    """Which operation of the script made NaN or Inf out of finite numbers in the step at fault; "" if none did."""
    found = fact(case, "nonfinite_made")
    for one in found if isinstance(found, list) else ():
        if one.get("step") in (case.onset, case.step):
            return f"{one['operation']} makes {one['made']} out of finite numbers at step {one['step']}: {one['line']}"
    return ""
