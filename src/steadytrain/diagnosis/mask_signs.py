"""Means over a mask that selects nothing, as signs: where, in which rows, and whether the model takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from steadytrain.diagnosis.signs import enumerated, fact

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


def empty_mask(case: Case) -> str:
    """Where a mean is over a mask that selects nothing, and in which rows; "" if nowhere."""
    found = fact(case, "empty_masks")
    one = found[0] if isinstance(found, list) and found else None
    if not isinstance(one, Mapping):
        return ""
    rows: Sequence[int] = one.get("rows") or ()
    which = f"row {rows[0]}" if len(rows) == 1 else f"rows {enumerated(rows)}" if rows else "the whole batch"
    text = f"the mean at {one.get('line')} is over a mask that selects nothing in {which}"
    if divisor := one.get("divisor"):
        return f"{text}: its sum is divided by {divisor:.2g}, which gives {one.get('quotient', 0.0):.3g}"
    return text


def pools_nothing(case: Case) -> bool:
    """Whether that mean is one of the model, over positions of its input, and not of the loss over labels."""
    found = fact(case, "empty_masks")
    return isinstance(found, list) and bool(found) and isinstance(found[0], Mapping) and bool(found[0].get("in_model"))


def divides_by_little(case: Case) -> bool:
    """Whether a small number beside the count keeps a mean over nothing finite, and makes it large."""
    masks = fact(case, "empty_masks")
    return isinstance(masks, list) and any(isinstance(one, dict) and "divisor" in one for one in masks)


def rows_of_empty_mask(case: Case) -> tuple[int, ...]:
    """The rows of the batch in which the mask selects nothing."""
    masks = fact(case, "empty_masks")
    rows = masks[0].get("rows") if isinstance(masks, list) and masks and isinstance(masks[0], dict) else None
    return tuple(int(row) for row in rows) if isinstance(rows, list) else ()
