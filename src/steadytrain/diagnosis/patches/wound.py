"""What a recipe is given, and the patch that comes of it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from steadytrain.core.incident import Located
from steadytrain.core.json_values import JsonValue
from steadytrain.core.model import Window
from steadytrain.diagnosis.guarded_operations import forward_operation, is_plain_derivative
from steadytrain.diagnosis.patches.edits import Edit, Source
from steadytrain.statistics.corroboration import rate_jump

FACT_LINES: Mapping[str, tuple[str, ...]] = {
    "no-supervised-tokens": ("empty_masks",),
    "empty-input": ("empty_masks",),
    "singular-operation": ("nonfinite_made", "singular_calls"),
}
"""The facts that name the line of a cause in a run whose first bad operation was not located: ``train.py:17: code``."""


@dataclass(frozen=True)
class Patch(JsonValue):
    """A change of a script. ``diff`` is its unified diff, ``text`` the whole changed script."""

    cause: str
    what: str
    diff: str
    text: str


@dataclass(frozen=True)
class RateJump:
    """A steady learning rate became a far larger one from one step to the next."""

    before: float
    after: float
    step: int


def jump_before(window: Window, onset: int) -> RateJump | None:
    """The last jump of the recorded learning rate up to ``onset``; None if it did not jump."""
    rates = window.series("learning_rate")
    values, steps = rates.values[rates.steps <= onset], rates.steps
    row = rate_jump(values) if len(values) > 1 else None
    return RateJump(float(values[row - 1]), float(values[row]), int(steps[row])) if row is not None else None


@dataclass(frozen=True)
class Wound:
    """What a patch needs besides the script. ``line`` is that of the first bad operation in the script itself, None if
    it lies elsewhere; ``operation`` its name. ``norm`` is the usual norm of the gradients, ``facts`` those of the
    survey. ``rows`` are the places in the data set of the samples that hold NaN or Inf. ``symptoms`` are the names of
    those that were seen, ``named`` the lines of this file that some of them name."""

    line: int | None = None
    operation: str = ""
    norm: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    rows: tuple[int, ...] = ()
    symptoms: frozenset[str] = frozenset()
    named: Mapping[str, int] = field(default_factory=dict)
    jump: RateJump | None = None
    """The jump of the learning rate from which the symptom came; None without one."""

    optimizer: str = ""
    """The script's own name of the optimizer whose steps show the symptom, where it has several."""


Maker = Callable[[Source, Wound], Iterator[Edit]]
"""Yields the edits that mend the source.

Raises:
    CannotPatchError: the source leaves open where or how it should change.
"""


def wound_of(
    file: str, cause: str, located: Located | None, norm: float | None, facts: Mapping[str, Any] | None = None
) -> Wound:
    """The wound of the source file at path ``file``: of the script, or of a module that it imports."""
    known = facts or {}
    if located is None:
        line, operation = _of_facts(file, cause, known)
        return Wound(line, operation, norm, known)
    line = located.line if located.file is not None and located.file == file else None
    named = forward_operation(located) if is_plain_derivative(located) else ""
    return Wound(line, named or located.operation.removeprefix("aten.").partition(".")[0].strip("_"), norm, known)


def _of_facts(file: str, cause: str, facts: Mapping[str, Any]) -> tuple[int | None, str]:
    """Line and operation of the only entry of a fact that lies in a file of this name."""
    for name in FACT_LINES.get(cause, ()):
        found = set()
        for entry in facts.get(name) or ():
            match = re.match(r"([^:]+):(\d+)", str(entry.get("line", ""))) if isinstance(entry, Mapping) else None
            if match and match[1] == os.path.basename(file):
                found.add((int(match[2]), str(entry.get("operation", "div_mean"))))
        if len(found) == 1:
            return found.pop()
    return None, ""
