"""Finds in-place changes of a copy that nobody keeps: ``residual[index].zero_()``.

An index tensor, a list of places or a mask makes a copy of what it takes. The method changes that copy, which is then
thrown away; only ``residual[index] = 0`` writes into ``residual``. A number or a slice gives a view, and is left alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from steadytrain.capture.looks.syntax_trees import (
    Scope,
    argument_names,
    assignments,
    dotted,
    last_name,
    names_stored,
    scopes,
    statements,
)

IN_PLACE = re.compile(
    r"(zero|fill|add|sub|mul|div|clamp|clamp_min|clamp_max|clip|copy|neg|normal|uniform|masked_fill|pow|sqrt|exp|abs|round"
    r"|relu|sigmoid|nan_to_num|lerp|addcmul|addcdiv|sign|floor|fmod|bernoulli|trunc_normal)_"
)
PLACES = frozenset({"nonzero", "where", "argsort", "randperm", "multinomial", "argwhere", "flatnonzero", "tensor"})
PAIRS = frozenset({"topk", "sort", "kthvalue"})
"""Their second part holds places."""

TESTS = frozenset(
    {"isnan", "isinf", "isfinite", "isin", "eq", "ne", "lt", "gt", "le", "ge", "bool"}
    | {"logical_and", "logical_or", "logical_not"}
)
NUMBERS = frozenset({"item", "tolist", "int", "argmax", "argmin", "randint", "choice", "len"})
MASK = re.compile(r"(?i)(\w+_)?(mask|indices)")
"""Arguments of these names are masks and index tensors."""


def changed_copies(tree: ast.Module) -> Iterator[int]:
    """The lines of such changes, but those of a residual of compressed gradients (``kept_residuals``)."""
    for scope in scopes(tree):
        if not compresses(scope):
            yield from lost_changes(scope)


def compresses(scope: Scope) -> bool:
    """Whether a scope chooses the largest values of something, as compressed gradients are."""
    return any(isinstance(one, ast.Call) and last_name(one.func) == "topk" for one in statements(scope))


def lost_changes(scope: Scope) -> Iterator[int]:
    """The lines of a scope that change a copy in place."""
    lost = [one for node in statements(scope) if (one := _changed(node)) is not None]
    places = _places(scope) if lost else set()
    for one in lost:
        parts = one.slice.elts if isinstance(one.slice, ast.Tuple) else [one.slice]
        if any(_is_place(part, places) for part in parts):
            yield one.lineno


def _changed(node: ast.AST) -> ast.Subscript | None:
    """``x[index]`` of a statement ``x[index].zero_()``, also after further in-place methods."""
    value = node.value if isinstance(node, ast.Expr) else None
    found = None
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        if not IN_PLACE.fullmatch(value.func.attr):
            return None
        found = value = value.func.value
    return found if isinstance(found, ast.Subscript) else None


def _places(scope: Scope) -> set[str]:
    """Names that hold index tensors or masks in this scope, and nothing else."""
    found = {name for name in argument_names(scope) if MASK.fullmatch(name)}
    others: set[str] = set()
    for target, value in assignments(statements(scope)):
        for name, holds in _given(target, value, found):
            (found if holds else others).add(name)
    return found - others - _counted(scope)


def _given(target: ast.expr, value: ast.expr, places: set[str]) -> Iterator[tuple[str, bool]]:
    """Each name that is given a value, with whether that is an index tensor or a mask."""
    pair = isinstance(value, ast.Call) and last_name(value.func) in PAIRS
    if isinstance(target, ast.Tuple):
        for place, one in enumerate(target.elts):
            yield dotted(one), pair and place == 1
    else:
        yield dotted(target), _is_place(value, places)


def _is_place(value: ast.expr, places: set[str]) -> bool:
    if isinstance(value, (ast.Name, ast.Attribute)) and dotted(value) in places:
        return True
    if isinstance(value, ast.Attribute):
        inner = value.value
        return value.attr == "indices" and isinstance(inner, ast.Call) and last_name(inner.func) in PAIRS
    if isinstance(value, ast.Compare):
        return not any(isinstance(one, (ast.In, ast.NotIn, ast.Is, ast.IsNot)) for one in value.ops)
    if isinstance(value, ast.UnaryOp):
        return isinstance(value.op, ast.Invert) and (_is_place(value.operand, places) or _is_mask(value.operand))
    if isinstance(value, ast.BinOp):
        sides = (value.left, value.right)
        return isinstance(value.op, (ast.BitAnd, ast.BitOr)) and any(_is_place(one, places) for one in sides)
    if isinstance(value, ast.Subscript):
        inner = value.value
        if isinstance(inner, ast.Call) and last_name(inner.func) in PAIRS:
            return isinstance(value.slice, ast.Constant) and value.slice.value == 1
        return isinstance(value.slice, ast.Slice) and _is_place(inner, places)
    if isinstance(value, ast.List):
        return len(value.elts) > 1 and all(isinstance(one, ast.Constant) for one in value.elts)
    return isinstance(value, ast.Call) and _is_made(value, places)


def _is_made(call: ast.Call, places: set[str]) -> bool:
    """Whether a call makes an index tensor or a mask, or passes one on."""
    name = last_name(call.func)
    if name in NUMBERS:
        return False
    if name in PLACES or name in TESTS:
        return True
    inner = call.func.value if isinstance(call.func, ast.Attribute) else None
    passes = name in ("to", "long", "flatten", "squeeze", "view", "reshape", "unique", "cpu", "cuda", "contiguous")
    return passes and inner is not None and _is_place(inner, places)


def _is_mask(value: ast.expr) -> bool:
    return bool(MASK.fullmatch(dotted(value).rpartition(".")[2]))


def _counted(scope: Scope) -> set[str]:
    """The variables of loops, which are one place at a time."""
    loops = (node for node in statements(scope) if isinstance(node, (ast.For, ast.comprehension)))
    return {name for node in loops for name in names_stored(node.target)}
