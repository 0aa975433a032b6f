"""The result of a gate: frozen values, and the document ``steadytrain.gate/1``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from steadytrain.core.json_values import JsonValue
from steadytrain.core.model import ScriptLine
from steadytrain.core.notebook import as_html

SCHEMA = "steadytrain.gate/1"
REASONS_SHOWN_MAX = 3

Status = Literal["pass", "fail", "unknown"]


@dataclass(frozen=True)
class Check(JsonValue):
    """One demand of the policy on one run. ``unknown``: what was recorded cannot answer it; the gate then fails.

    ``step`` is the first step at fault, None if there is none. ``at`` is the line of the script at fault, if one is
    known.
    """

    name: str
    status: Status
    reason: str
    step: int | None = None
    at: ScriptLine | None = None


@dataclass(frozen=True)
class GatedRun(JsonValue, keys="run path passed checks"):
    """One run and its checks."""

    run: str
    path: str
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        return all(check.status == "pass" for check in self.checks)


@dataclass(frozen=True)
class GateResult(JsonValue, keys="passed policy references runs unreadable", schema=SCHEMA):
    """The answer of a gate. ``policy`` is ``default`` or the file, ``references`` the names of the reference runs.

    ``unreadable`` has a line for each log of a folder that could not be read; the gate then fails.
    """

    policy: str
    references: tuple[str, ...]
    runs: tuple[GatedRun, ...]
    unreadable: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return bool(self.runs) and not self.unreadable and all(run.passed for run in self.runs)

    def __bool__(self) -> bool:
        """Whether all passed, so that ``assert gate(run)`` means what it says."""
        return self.passed

    def __repr__(self) -> str:
        passed = sum(run.passed for run in self.runs)
        faults = [f"{run.run}: {_faults(run)}" for run in self.runs if not run.passed] + list(self.unreadable)
        more = f" and {len(faults) - REASONS_SHOWN_MAX} more" if len(faults) > REASONS_SHOWN_MAX else ""
        why = f"; {'; '.join(faults[:REASONS_SHOWN_MAX])}{more}" if faults else ""
        return f"<GateResult {'passed' if self.passed else 'failed'}: {passed} of {len(self.runs)} runs passed{why}>"

    def _repr_html_(self) -> str:
        return as_html(
            f"Gate {'passed' if self.passed else 'failed'}",
            {run.run: "passed" if run.passed else _faults(run) for run in self.runs},
        )


def _faults(run: GatedRun) -> str:
    return "; ".join(f"{check.name}: {check.reason}" for check in run.checks if check.status != "pass")
