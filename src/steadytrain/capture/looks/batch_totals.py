"""Finds a sum over all rows of a batch that is added to the value of each single row.

``(per_row + log_det.sum()).mean()`` counts each row's ``log_det`` once for every row of the batch: N times.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from steadytrain.capture.looks.graph_nodes import inputs_of_node, kind_of, multiplied_by, shape_of

REDUCTIONS = frozenset({"Mean", "Sum"})
KEEPS_TERMS = frozenset({"Add", "Sub", "Rsub", "Neg", "Mul", "Div"})
OF_ELEMENTS = frozenset({"Pow", "Abs", "Mul", "Square", "Exp", "Log", "Neg"})
STEPS_MAX, ROWS_MIN = 64, 4
ROOM = 1e-3
"""How far a factor may lie beside that of an average: it may be a number of 32 bits."""


def batch_totals(kind: str, node: Any) -> Iterator[tuple[str, float]]:
    """``batch-total`` is N, where ``node`` averages or sums N rows, each with the sum of all N rows in it."""
    before = inputs_of_node(node) if kind in REDUCTIONS and not shape_of(node) else []
    rows = shape_of(before[0])[0] if before and len(shape_of(before[0])) == 1 else 0
    if rows < ROWS_MIN:
        return
    waiting = before
    for _ in range(STEPS_MAX):
        if not waiting:
            return
        one = waiting.pop()
        shape = shape_of(one)
        if kind_of(one) == "Sum" and not shape and _is_of_rows(one, rows):
            yield "batch-total", float(rows)
            return
        if shape in ((), (rows,)) and kind_of(one) in KEEPS_TERMS and not _averages(one, rows):
            waiting += inputs_of_node(one)


def _averages(node: Any, rows: int) -> bool:
    """Whether ``node`` divides by the number of rows, or by a multiple of it: by all tokens of the batch."""
    number = multiplied_by(kind_of(node), node)
    times = 1 / (abs(number) * rows) if number else 0.0
    return times > 1 - ROOM and abs(times - round(times)) < ROOM


def _is_of_rows(total: Any, rows: int) -> bool:
    """Whether a number is the sum of something with ``rows`` rows, which is no penalty of weights."""
    following = inputs_of_node(total)
    if not following or shape_of(following[0])[:1] != (rows,):
        return False
    for _ in range(STEPS_MAX):
        if not following or kind_of(following[0]) not in OF_ELEMENTS:
            break
        following = inputs_of_node(following[0])
    return bool(following) and kind_of(following[0]) != "AccumulateGrad"
