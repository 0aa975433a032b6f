"""Integers that do not fit their type and wrap around."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

from steadytrain.diagnosis.cause import CERTAIN, Cause, Intervention, Sign, Signature
from steadytrain.diagnosis.signs import Signs, ruled_out, surveyed
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class IntegerOverflow(Cause):
    """An integer of the script does not fit its type and wraps around: 127 + 1 in int8 is -128.

    Means:
        Torch does not warn. Large values change their sign or become small ones: quantised gradients point uphill, ids
        name other rows, pixels that are too bright are black.

    Causes:
        - quantised gradients or codes of several workers that are summed in int8
        - ids, classes or offsets cast to uint8, int8 or int16: `.byte()`, `.to(torch.uint8)`, `.short()`
        - differences and brightness of images in uint8
        - `row * width + column` in int16 or int32, or a cumulated offset with such a `dtype`

    Next:
        1. Go to the named line and print the smallest and the largest result in int64.
        2. Compute there in int32 or int64, or clamp before the cast. What NumPy computes is not looked at.
    """

    axis = "precision"
    base_rate = 2.0
    rivals = ("learning-rate-too-high", "label-misalignment", "bad-batch")
    expects = like("script", removed=("wider-integers",), either=("learning-rate-third", "learning-rate-tenth"))
    evidence = ("fact wrapped_integers",)
    confirming = ("wider-integers",)
    spared = ("drop-batch",)
    interventions = (
        Intervention(
            "wider-type",
            4,
            "compute in int32 or int64 at the named line, or clamp before the cast",
            "wider-integers",
            code="total = part.to(torch.int32) + other  # or: x.clamp(0, 255).to(torch.uint8)",
        ),
    )
    grade = "C"
    source = "torch.Tensor: type promotion keeps the type of two tensors of one; 1610.02132 (QSGD)"

    def signature(self, case: Case) -> Signature:
        found = wrapped(case)
        return Signature(
            (
                *_wraps(found),
                *ruled_out(surveyed(case) and not found, "no integer of the script left its type"),
            )
        )


def wrapped(case: Case) -> Sequence[Mapping[str, Any]]:
    """The lines whose integers wrapped."""
    return case.entries("wrapped_integers")


def _wraps(found: Sequence[Mapping[str, Any]]) -> Signs:
    if not found:
        return ()
    first = found[0]
    place, _, code = str(first["line"]).partition(": ")
    share = f"{first['wrapped']:,} of {first['elements']:,} integers"
    became = f", {first['example'][0]} became {first['example'][1]}" if "example" in first else ""
    said = f"{share} of {place} (`{code}`) did not fit {first['dtype']} and wrapped around{became}"
    more = f"; so did those of {len(found) - 1} more lines" if len(found) > 1 else ""
    return (Sign(said + more, CERTAIN, "fact wrapped_integers", {"step": float(first["step"])}, invariant=True),)
