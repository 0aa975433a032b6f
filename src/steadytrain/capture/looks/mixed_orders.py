"""Finds rows of a rollout that are flattened in two orders: some tables transposed first, others not.

A table [steps, environments] that is reshaped to one row has the environments side by side; transposed first, it has
the steps side by side. So has a stack of the columns of such a table, ``stack([f(table[:, i]) for i in ...])``. Where
both are read by one index, each sample gets the advantage of another.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from steadytrain.capture.looks.syntax_trees import (
    Scope,
    assignments,
    dotted,
    last_name,
    number_of,
    scopes,
    statements,
    walk,
)

FLATTENS = ("reshape", "view", "flatten")
WRAPS = ("from_numpy", "as_tensor", "tensor", "asarray", "array", "FloatTensor")
OTHER = {"plain": "turned", "turned": "plain"}
TURNS = ("transpose", "swapaxes", "swapdims", "permute", "T", "mT")
TABLES = re.compile(
    r"(?i)(.*_)?(obs\w*|states?|act(ion)?s?|adv\w*|ret(urn)?s?|rew(ard)?s?|val(ue)?s?|targets?|log_?p\w*|dones?)(_.*)?"
)


def mixed_orders(tree: ast.Module) -> Iterator[int]:
    """The lines of tables that are flattened as they are, beside others that are transposed first."""
    turning: set[str] = set()
    plain: set[str] = set()
    for function in (one for one in walk(tree) if isinstance(one, ast.FunctionDef)):
        returned = [one.value for one in statements(function) if isinstance(one, ast.Return) and one.value is not None]
        if len(returned) == 1 and len(function.args.args) >= 1:
            order = _order(returned[0], set(), set())
            (turning if order == "turned" else plain if order == "plain" else set()).add(function.name)
    for scope in scopes(tree):
        yield from _in(scope, turning, plain)


def _in(scope: Scope, turning: set[str], plain: set[str]) -> Iterator[int]:
    orders: dict[str, tuple[str, int]] = {}
    columns: set[str] = set()
    for target, value in assignments(statements(scope)):
        if isinstance(target, ast.Name) and TABLES.fullmatch(target.id):
            if _stacks_columns(value):
                columns.add(target.id)
            elif order := _order(value, turning, plain):
                of_columns = bool(columns & {one.id for one in walk(value) if isinstance(one, ast.Name)})
                orders[target.id] = (OTHER[order] if of_columns else order, target.lineno)
    if {order for order, _ in orders.values()} != {"turned", "plain"}:
        return
    read: dict[str, set[str]] = {}
    for node in statements(scope):
        for name, index in _reads(node):
            if name in orders:
                read.setdefault(index, set()).add(name)
    for names in read.values():
        if {orders[name][0] for name in names} == {"turned", "plain"}:
            yield min(orders[name][1] for name in names if orders[name][0] == "plain")
            return


def _reads(node: ast.AST) -> Iterator[tuple[str, str]]:
    """``obs`` and ``rows`` of ``obs[rows]``, and of ``one[rows] for one in (obs, acts)``."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        if isinstance(node.value, ast.Name) and isinstance(node.slice, ast.Name):
            yield node.value.id, node.slice.id
    elif isinstance(node, (ast.GeneratorExp, ast.ListComp)) and len(node.generators) == 1:
        target, tables = node.generators[0].target, node.generators[0].iter
        if isinstance(target, ast.Name) and isinstance(tables, (ast.Tuple, ast.List)):
            for one in walk(node.elt):
                for name, index in _reads(one):
                    if name == target.id:
                        yield from ((table.id, index) for table in tables.elts if isinstance(table, ast.Name))


def _stacks_columns(value: ast.expr) -> bool:
    """Whether a table is a stack of the columns of others along its first dimension."""
    for call in (one for one in walk(value) if isinstance(one, ast.Call) and last_name(one.func) == "stack"):
        axis = next((one.value for one in call.keywords if one.arg in ("axis", "dim")), (*call.args, None, None)[1])
        rows = call.args[0] if call.args else None
        if not isinstance(rows, (ast.ListComp, ast.GeneratorExp)) or not (axis is None or number_of(axis) == 0):
            continue
        index = rows.generators[0].target
        places = (one.slice for one in walk(rows.elt) if isinstance(one, ast.Subscript))
        if any(isinstance(at, ast.Tuple) and len(at.elts) == 2 and _is_column(at, index) for at in places):
            return True
    return False


def _is_column(place: ast.Tuple, index: ast.expr) -> bool:
    """Whether ``place`` is ``:, i``."""
    every, one = place.elts
    whole = isinstance(every, ast.Slice) and every.lower is every.upper is None
    return whole and isinstance(one, ast.Name) and isinstance(index, ast.Name) and one.id == index.id


def _order(value: ast.expr, turning: set[str], plain: set[str]) -> str:
    """``turned`` of a table that is transposed and flattened, ``plain`` of one that is flattened, "" of all others."""
    if not isinstance(value, ast.Call):
        return ""
    name = last_name(value.func)
    if name in WRAPS and len(value.args) == 1:
        return _order(value.args[0], turning, plain)
    if name == "rearrange" and len(value.args) == 2 and isinstance(value.args[1], ast.Constant):
        return _of_pattern(str(value.args[1].value))
    if isinstance(value.func, ast.Name):
        return "turned" if name in turning else "plain" if name in plain else ""
    if not isinstance(value.func, ast.Attribute) or name not in FLATTENS:
        return ""
    rows = value.args[0] if value.args else None
    if name != "flatten" and not (number_of(rows) == -1 or isinstance(rows, (ast.Name, ast.BinOp))):
        return ""
    inner = value.func.value
    if isinstance(inner, ast.Attribute) and inner.attr in TURNS:
        return "turned" if dotted(inner.value) else ""
    if isinstance(inner, (ast.Name, ast.Attribute)):
        return "plain" if len(value.args) == 1 or number_of(rows) == -1 or name == "flatten" else ""
    if isinstance(inner, ast.Call) and last_name(inner.func) in TURNS:
        axes = [number_of(one) for one in inner.args]
        return "turned" if axes[:2] in ([0, 1], [1, 0]) else ""
    return ""


def _of_pattern(pattern: str) -> str:
    """The order that a pattern of ``einops.rearrange`` means: turned in "t e c -> (e t) c"."""
    before, _, after = pattern.partition("->")
    axes = before.split()[:2]
    joined = re.match(r" *\( *(\w+) +(\w+) *\)", after)
    if len(axes) < 2 or joined is None:
        return ""
    return {tuple(axes): "plain", tuple(reversed(axes)): "turned"}.get(joined.groups(), "")
