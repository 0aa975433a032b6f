"""Signs from operations of the script that suddenly make large numbers out of ordinary ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from steadytrain.diagnosis.cause import Sign
from steadytrain.diagnosis.signs import Signs, fact

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case

TINY_RATIO = 0.1
"""A divisor is named as the reason if it falls to this share of the smallest of earlier steps."""


def amplified(case: Case) -> Mapping[str, Any] | None:
    """The first operation around the onset that made far larger numbers than before; None if there is none."""
    listed = fact(case, "amplified")
    found = listed[0] if isinstance(listed, (list, tuple)) and listed else None
    return found if isinstance(found, Mapping) else None


def amplifies(case: Case, weight: float) -> Signs:
    """A sign if an operation of the script suddenly made large numbers out of ordinary ones."""
    found = amplified(case)
    if found is None:
        return ()
    numbers = {name: float(found[name]) for name in ("step", "result", "before") if name in found}
    return (Sign(said(found), weight, "fact amplified", numbers),)


def makes_inputs(case: Case, weight: float) -> Signs:
    """A sign if such an operation prepares the inputs of the model: what it was given lay where it lay before."""
    found = amplified(case)
    if found is None or not found.get("before_model"):
        return ()
    text = f"the script itself makes the inputs large, from data as before: {said(found)}"
    return (Sign(text, weight, "fact amplified", {"step": float(found["step"])}),)


def said(found: Mapping[str, Any]) -> str:
    """What the operation did, in words."""
    place, _, code = str(found["line"]).partition(": ")
    now, before = float(found["result"]), float(found["before"])
    text = f"{found['operation'].removeprefix('true')} at {place} (`{code}`) made {now:.3g} at step {found['step']}, "
    text += f"and at most {before:.3g} in earlier steps, of numbers no larger than usual"
    divisor, usual = found.get("divisor"), found.get("divisor_before")
    if divisor is not None and usual is not None and divisor <= TINY_RATIO * usual:
        text += f": its divisor fell to {divisor:.3g} (before: {usual:.3g} and more)"
    elif divisor is not None and divisor <= TINY_RATIO * float(found.get("divisor_usual") or 0.0):
        text += f": it divides by numbers down to {divisor:.3g}, where {float(found['divisor_usual']):.3g} is usual"
    return text
