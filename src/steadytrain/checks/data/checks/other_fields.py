"""Rows with other fields, or with values of another type."""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar, final

import numpy as np

from steadytrain.checks.data.data_check import Circumstances, DataCheck, Example, Examples, Judgement, Part

SIGNATURES_MAX = 256
"""Number of distinct field sets that are counted. Rows with further sets count as other."""


@final
class OtherFields(DataCheck):
    """All rows have the same fields with values of the same types.

    Means:
        Some rows lack fields that others have, or a value of another type: a number as text, a list instead of a text,
        null. A missing field fails late, in the first batch with such a row; a number that became text is often
        silently tokenized.

    Next:
        Write the rows again with one schema. Fields that may be missing should be there as null in all rows.
    """

    reads: ClassVar[tuple[str, ...]] = ()

    def __init__(self, circumstances: Circumstances) -> None:
        super().__init__(circumstances)
        self._counts: Counter[tuple[tuple[str, str], ...]] = Counter()
        self._shown: dict[tuple[tuple[str, str], ...], list[Example]] = {}
        self._rows = self._beyond = 0

    def look(self, part: Part) -> None:
        self._rows += len(part.rows)
        for place, row in enumerate(part.rows):
            assert row.fields is not None
            signature = tuple(sorted((name, _kind(value)) for name, value in row.fields.items()))
            if signature not in self._counts:
                if len(self._counts) >= SIGNATURES_MAX:
                    self._beyond += 1
                    continue
                examples = Examples()
                examples.add(part, [place])
                self._shown[signature] = examples.kept
            self._counts[signature] += 1

    def judge(self) -> Judgement:
        if not self._counts:
            return Judgement("not-run", "no row could be read")
        usual, count = self._counts.most_common(1)[0]
        numbers = {"rows": float(self._rows), "usual": float(count), "kinds": float(len(self._counts))}
        if len(self._counts) == 1:
            return Judgement("pass", f"all rows have the same fields: {_names(usual)}", numbers)
        types, missing, examples = 0, 0, []
        for signature, rows in self._counts.most_common():
            if signature == usual:
                continue
            change = _difference(dict(usual), dict(signature))
            if change.startswith("type"):
                types += rows
            else:
                missing += rows
            example = self._shown[signature][0]
            examples.append(Example(example.row, example.place, example.text, f"{change} ({rows:,} rows)"))
        numbers |= {"other_types": float(types), "other_fields": float(missing + self._beyond)}
        message = f"{self._rows - count:,} of {self._rows:,} rows differ from the usual {_names(usual)}"
        return Judgement("fail" if types else "warn", f"{message}; first: {examples[0].why}", numbers, examples[:5])


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float, np.number)):
        return "number"
    if value is None:
        return "null"
    if isinstance(value, str):
        return "text"
    if isinstance(value, (list, tuple, np.ndarray)):
        return "list"
    return "object" if isinstance(value, dict) else type(value).__name__


def _difference(usual: dict[str, str], other: dict[str, str]) -> str:
    for name in usual.keys() & other.keys():
        if usual[name] != other[name]:
            # Null where other rows have a value is a missing value, not another type.
            word = "null" if "null" in (usual[name], other[name]) else "type"
            return f"{word} of {name!r}: {other[name]}, where others have {usual[name]}"
    lost, added = sorted(usual.keys() - other.keys()), sorted(other.keys() - usual.keys())
    return "; ".join(
        [f"without {', '.join(lost[:4])}"] * bool(lost) + [f"with {', '.join(added[:4])} besides"] * bool(added)
    )


def _names(signature: tuple[tuple[str, str], ...]) -> str:
    return ", ".join(name for name, _ in signature[:8]) + (", ..." if len(signature) > 8 else "")
