"""The terms that a script adds up to its loss, with their signs, at the first and the last surveyed step.

Also, which of them outweighs another because they were reduced differently (``loss_reductions``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from steadytrain.survey import loss_reductions
from steadytrain.survey.loss_reductions import Reductions

ADDS, SUBTRACTS = frozenset({"add", "__add__"}), frozenset({"sub", "__sub__"})
NAMES = ADDS | SUBTRACTS
PLACES = ("the first term of", "the second term of")
TERMS_MAX = 32
REDUCTIONS = loss_reductions.NAMES


def are_terms(name: str, args: Sequence[Any]) -> bool:
    """Whether two tensors with one element each, both of which train something, are added or subtracted."""
    if name not in NAMES or len(args) != 2:
        return False
    return all(isinstance(one, Tensor) and one.numel() == 1 and one.requires_grad for one in args)


class LossTerms:
    """Both operands of each sum or difference of two single numbers that training reaches."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, str], list[float]] = {}
        self._unequal: dict[tuple[str, str], dict[str, float]] = {}
        self.reductions = Reductions()

    def saw(self, name: str, args: Sequence[Any], given: Any, line: str) -> None:
        """Reads ``one + other`` or ``one - other``."""
        if given:
            return
        for place, one, other in zip(PLACES, args, reversed(args), strict=True):
            numbers = self.reductions.unequal(other, one)
            if numbers is not None and len(self._unequal) < TERMS_MAX:
                self._unequal[(line, place)] = numbers
        signs = (1.0, -1.0 if name in SUBTRACTS else 1.0)
        for place, sign, one in zip(PLACES, signs, args, strict=True):
            key = (line, place)
            if key not in self._values and len(self._values) >= TERMS_MAX:
                continue
            value = sign * float(one.detach())
            first = self._values.get(key, [value])[0]
            self._values[key] = [first, value]

    @property
    def unequal(self) -> list[dict[str, Any]]:
        """``{line, place, averaged, summed, heavier}`` of each term that outweighs the other one of its sum."""
        return [{"line": line, "place": place, **numbers} for (line, place), numbers in self._unequal.items()]

    @property
    def found(self) -> list[dict[str, Any]]:
        """``{line, place, first, last}`` of each term."""
        return [
            {"line": line, "place": place, "first": values[0], "last": values[1]}
            for (line, place), values in self._values.items()
        ]
