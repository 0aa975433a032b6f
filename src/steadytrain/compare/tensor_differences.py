"""Tensor differences between two checkpoints, by name.

Not here: counters, settings and other plain values (``differences``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from steadytrain.compare.checkpoint_contents import Held, Tensors
from steadytrain.core.json_values import JsonValue

Kind = Literal["missing", "unexpected", "reshaped", "cast", "swapped", "stale", "changed", "inconsistent"]

KINDS: Mapping[str, str] = {
    "missing": "expected, but absent",
    "unexpected": "present, but not expected",
    "reshaped": "has another shape",
    "cast": "went through another number format",
    "swapped": "holds what belongs to another name",
    "stale": "as it was at another step",
    "changed": "has another value",
    "inconsistent": "contradicts another part of the same checkpoint",
}

UNKNOWN_DTYPE = "?"
"""Dtype of a tensor of which only the norm was recorded."""


@dataclass(frozen=True)
class Difference(JsonValue):
    """One deviation. ``expected`` and ``found`` are texts, None if the entry is absent."""

    part: str
    name: str
    kind: Kind
    message: str
    expected: str | None = None
    found: str | None = None


def compare_tensors(
    part: str,
    found: Tensors,
    expected: Tensors,
    *,
    same_step: bool = True,
    older: Sequence[tuple[int | None, Tensors]] = (),
) -> list[Difference]:
    """Compare tensors by name. ``older`` holds those of the same run at other steps."""
    found = _aligned(found, expected)
    differences = []
    present = {held.digest for name, held in expected.items() if name in found and held.digest}
    for name, wanted in expected.items():
        held = found.get(name)
        if held is None:
            if wanted.digest is None or wanted.digest not in present or not wanted.shape:  # a tied weight is saved once
                differences.append(_difference(part, name, "missing", wanted, None))
        elif held.shape != wanted.shape:
            differences.append(_difference(part, name, "reshaped", wanted, held))
        elif _cast(held, wanted):
            differences.append(_difference(part, name, "cast", wanted, held))
        elif held.nonfinite and not wanted.nonfinite:
            why = f"{held.nonfinite:,} NaN or Inf"
            differences.append(_difference(part, name, "changed", wanted, held, why))
        elif same_step and differs(held, wanted):
            differences.append(_other_value(part, name, held, wanted, expected, older))
        elif not same_step and _unmoved(name, held, wanted, found, expected):
            why = "has not changed between the two steps, though most others have"
            differences.append(_difference(part, name, "stale", wanted, held, why))
    extra = {held.digest for name, held in found.items() if name in expected and held.digest}
    for name, held in found.items():
        if name not in expected and (held.digest is None or held.digest not in extra):
            differences.append(_difference(part, name, "unexpected", None, held))
    return _with_all_swaps(differences)


def differs(held: Held, wanted: Held) -> bool:
    """Whether the values differ: by digest if both are known, else by norm."""
    if held.digest is not None and wanted.digest is not None and held.dtype == wanted.dtype:
        return held.digest != wanted.digest
    if held.norm is None or wanted.norm is None:
        return False
    return not _near(held.norm, wanted.norm, 1e-5)


def _cast(held: Held, wanted: Held) -> bool:
    if held.dtype != wanted.dtype:
        return True
    return held.rounded is not None and held.rounded != wanted.rounded and wanted.rounded is None


def _near(one: float, other: float, tolerance: float) -> bool:
    return one == other or abs(one - other) <= tolerance * max(abs(one), abs(other))


def _unmoved(name: str, held: Held, wanted: Held, found: Tensors, expected: Tensors) -> bool:
    """Whether this tensor is unchanged between two steps while more than half of the others changed."""
    if held.digest is None or held.digest != wanted.digest or not held.norm:
        return False
    both = [other for other in found if other in expected and other != name]
    moved = sum(found[other].digest != expected[other].digest for other in both)
    return moved * 2 > len(both)


def _other_value(
    part: str,
    name: str,
    held: Held,
    wanted: Held,
    expected: Tensors,
    older: Sequence[tuple[int | None, Tensors]],
) -> Difference:
    """Classify a different value: that of another name, that of another step, all zeros, or just changed."""
    owner = next((other for other in _same_kind(name, expected) if _is(held, expected[other])), None)
    if owner is not None:
        return _difference(part, name, "swapped", wanted, held, f"holds what belongs to {owner}")
    for step, tensors in older:
        if name in tensors and tensors[name].digest is not None and tensors[name].digest == held.digest:
            return _difference(part, name, "stale", wanted, held, f"as it was at step {step}")
    if held.norm == 0.0 and wanted.norm:
        return _difference(part, name, "missing", wanted, held, "all zeros")
    return _difference(part, name, "changed", wanted, held)


def _same_kind(name: str, expected: Tensors) -> list[str]:
    """Names that could be swapped with the tensor ``name``: of the same shape, and the same moment."""
    _, slash, moment = name.rpartition("/")
    shape = expected[name].shape
    return [
        other
        for other, held in expected.items()
        if other != name and held.shape == shape and (not slash or other.endswith(f"/{moment}")) and held.norm
    ]


def _is(held: Held, other: Held) -> bool:
    if held.digest is not None and other.digest is not None and held.dtype == other.dtype:
        return held.digest == other.digest
    return held.norm is not None and other.norm is not None and _near(held.norm, other.norm, 1e-6)


def _with_all_swaps(differences: list[Difference]) -> list[Difference]:
    return sorted(differences, key=lambda difference: difference.kind != "swapped")


def _difference(
    part: str, name: str, kind: Kind, wanted: Held | None, held: Held | None, why: str | None = None
) -> Difference:
    if why is None and kind == "cast" and held is not None and wanted is not None:
        through = held.rounded if held.dtype == wanted.dtype else None
        why = (
            f"{held.dtype} values that have been rounded to {through}"
            if through
            else f"is {held.dtype}, was {wanted.dtype}"
        )
    message = f"{name}: {why or KINDS[kind]}"
    return Difference(part, name, kind, message, _told(wanted), _told(held))


def _told(held: Held | None) -> str | None:
    if held is None:
        return None
    norm = "" if held.norm is None else f", norm {held.norm:.6g}"
    if held.dtype == UNKNOWN_DTYPE:
        return norm.removeprefix(", ") or "of unknown size"
    return f"{held.dtype} {list(held.shape)}{norm}"


def _aligned(found: Tensors, expected: Tensors) -> Tensors:
    """``found`` under the names of ``expected``, if one side has a prefix (``model.``) that the other lacks."""
    shared = sum(name in expected for name in found)
    if not found or not expected or shared * 2 >= min(len(found), len(expected)):
        return found
    heads = {name.split(".", 1)[0] + "." for name in (*found, *expected) if "." in name}
    candidates: list[Callable[[str], str]] = []
    for head in sorted(heads):
        candidates.append(lambda name, head=head: name.removeprefix(head))  # type: ignore[misc]
        candidates.append(lambda name, head=head: head + name)  # type: ignore[misc]
    best = max(candidates, key=lambda rename: sum(rename(name) in expected for name in found), default=None)
    if best is None or sum(best(name) in expected for name in found) <= shared:
        return found
    return {best(name): held for name, held in found.items()}
