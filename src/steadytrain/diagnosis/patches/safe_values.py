"""Recipes that keep the input of an operation inside of its domain: a denominator, a logarithm, a root, an empty mean.

They change what the operation gets only where it would fail.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from typing import TypeGuard

from steadytrain.diagnosis.patches.edits import (
    CannotPatchError,
    Edit,
    Source,
    assigned,
    bare,
    calls,
    keyword,
    name_of,
    number,
    receiver,
)
from steadytrain.diagnosis.patches.wound import Wound

TINY = "1e-12"
"""Smallest argument of log, root and division: far below values of data, and its logarithm (-27.6) is harmless."""

NOT_OF_TENSORS = ("math", "np", "numpy")
IGNORED = "-100"
MASK_NAME = re.compile(
    r"(?:^|_)(mask|masks|valid|keep|kept|count|counts|counted|selected|supervised|nonpad|notpad)(?:_|$)"
)
"""Names of what says which elements count. A sum of other numbers may be less than 1 in a sound step."""


def safe_operation(source: Source, wound: Wound) -> Iterator[Edit]:
    if wound.line is None:
        raise CannotPatchError("the first bad operation lies in no line of the script itself")
    parts = set(wound.operation.replace("backward0", "").lower().split("_"))
    here = expressions_of(source, wound.line)
    found: dict[str, list[Edit]] = {}
    for name in ("log", "sqrt", "rsqrt"):
        if name in parts:
            found[name] = [_clamped(source, node) for node in here if of_tensors(node, name)]
    if parts & {"div", "divide"}:
        found["div"] = [
            _denominator(source, node.right)
            for node in here
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and number(node.right) is None
        ]
    if parts & {"std", "var"}:
        found["std"] = [edit for node in here if (edit := _of_one(source, node)) is not None]
    if "mean" in parts or "div" in parts:
        found["mean"] = [edit for node in here if (edit := _mean_of_selected(source, node)) is not None]
    kinds = [edits for edits in found.values() if edits]
    if len(kinds) != 1:
        raise CannotPatchError(
            f"line {wound.line} holds {len(kinds) or 'no'} kinds of operations that can be clamped, not one"
        )
    yield from _apart(wound.line, kinds[0])


def expressions_of(source: Source, line: int) -> list[ast.expr]:
    """The expressions that a line has a part in."""
    nodes = (node for node in ast.walk(source.tree) if isinstance(node, ast.expr))
    return [node for node in nodes if node.lineno <= line <= (node.end_lineno or node.lineno)]


def of_tensors(node: ast.expr, name: str) -> TypeGuard[ast.Call]:
    """Whether a node calls the function or method ``name`` of tensors."""
    return isinstance(node, ast.Call) and name_of(node) == name and receiver(node) not in NOT_OF_TENSORS


def _apart(line: int, edits: list[Edit]) -> list[Edit]:
    """The edits of all operations of one kind, each once: the same bound guards them all.

    Raises:
        CannotPatchError: one stands within another.
    """
    once = sorted(set(edits), key=lambda edit: edit.begin)
    if any(later.begin < one.end for one, later in itertools.pairwise(once)):
        raise CannotPatchError(f"line {line} holds operations within each other")
    return once


def _clamped(source: Source, call: ast.Call) -> Edit:
    """``torch.log(x)`` or ``x.log()`` with the argument clamped."""
    if call.args:
        argument: ast.expr = call.args[0]
    elif isinstance(call.func, ast.Attribute):
        argument = call.func.value
    else:
        raise CannotPatchError(f"line {call.lineno}: the call has no argument that can be read")
    return source.replaced(argument, f"{bare(source, argument)}.clamp(min={TINY})")


def _of_one(source: Source, node: ast.expr) -> Edit | None:
    """``x.std()`` with a correction of 0 where x holds a single number; of more numbers it is what it was."""
    if not isinstance(node, ast.Call) or name_of(node) not in ("std", "var") or node.args or node.keywords:
        return None
    values = node.func.value if isinstance(node.func, ast.Attribute) else None
    if not isinstance(values, ast.Name | ast.Attribute):
        return None
    name = source.text(values)
    return source.replaced(node, f"{source.text(node)[:-1]}correction=min(1, {name}.numel() - 1))")


def _denominator(source: Source, node: ast.expr, called: str = "") -> Edit:
    """A count is at least 1; a deviation or norm at least tiny. Others may be negative, or below 1 in a sound step."""
    name = name_of(node) if isinstance(node, ast.Call) else ""
    if name == "count_nonzero" or (name == "sum" and _counts(node, called)):
        return source.replaced(node, f"{source.text(node)}.clamp(min=1)")
    if name in ("std", "var", "norm", "sqrt", "exp", "abs", "vector_norm"):
        return source.replaced(node, f"{source.text(node)}.clamp(min={TINY})")
    if name == "len":
        return source.replaced(node, f"max(1, {source.text(node)})")
    if isinstance(node, ast.Name):
        values = assigned(source, node.id)
        if len(values) == 1 and isinstance(values[0], ast.Call):
            return _denominator(source, values[0], node.id)
    raise CannotPatchError(f"line {node.lineno}: the denominator is no count, so no bound is safe")


def _counts(total: ast.expr, called: str) -> bool:
    """Whether a sum counts what a mask selects: by the mask's name, that of its result, or because it compares."""
    if any(isinstance(node, ast.Compare) for node in ast.walk(total)):
        return True
    names = {called, *(node.id for node in ast.walk(total) if isinstance(node, ast.Name))}
    names |= {node.attr for node in ast.walk(total) if isinstance(node, ast.Attribute)}
    return bool(names & {"ne", "eq"}) or any(MASK_NAME.search(name.lower()) for name in names - {"sum"})


def _mean_of_selected(source: Source, node: ast.expr) -> Edit | None:
    """``x[mask].mean()`` as a sum over the count, at least 1."""
    if not isinstance(node, ast.Call) or name_of(node) != "mean" or node.args or node.keywords:
        return None
    chosen = node.func.value if isinstance(node.func, ast.Attribute) else None
    if not isinstance(chosen, ast.Subscript):
        return None
    inside = source.text(chosen)
    return source.replaced(node, f"({inside}.sum() / max(1, {inside}.numel()))")


def counted_labels(source: Source, wound: Wound) -> Iterator[Edit]:
    """Cross entropy as a sum over the count of labels, at least 1."""
    found = [one for one in calls(source, lambda one: name_of(one) == "cross_entropy") if len(one.args) == 2]
    if len(found) != 1 or any(one.arg not in ("ignore_index", "label_smoothing") for one in found[0].keywords):
        raise CannotPatchError("no single cross_entropy(scores, labels) stands in the script")
    call = found[0]
    ignored = keyword(call, "ignore_index")
    labels, whole = call.args[1], source.text(call)
    if not isinstance(labels, ast.Name | ast.Attribute | ast.Call):
        raise CannotPatchError(f"line {call.lineno}: the labels are no plain expression")
    summed = f'{whole[:-1].rstrip().rstrip(",")}, reduction="sum")'
    mask = f"({source.text(labels)} != {source.text(ignored) if ignored is not None else IGNORED})"
    yield source.replaced(call, f"({summed} / {mask}.sum().clamp(min=1))")
