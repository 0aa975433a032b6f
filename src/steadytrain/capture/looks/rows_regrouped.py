"""Finds rows that a model sorts or groups for one of its parts, and does not put back into their order.

The mistake has three parts in one function: rows are taken in another order (``x[order]`` of a sort) or group by group
(``x[group == i]``); a module, or a packed sequence, computes them; and what comes of them is returned as it is. No
mistake is seen if the order is used once more, for whatever, if labels are taken in it too, or if all rows are
averaged.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from steadytrain.capture.looks.split_names import TARGETS, words
from steadytrain.capture.looks.syntax_trees import (
    Scope,
    dotted,
    draws,
    last_name,
    names_called,
    names_read,
    names_stored,
    statements,
    walk,
)

JOINS = frozenset({"cat", "concat", "concatenate", "vstack"})
SPLITS = frozenset({"split", "bincount", "chunk", "tensor_split", "unique_consecutive", "searchsorted"})
REDUCES = frozenset({"mean", "sum", "std", "var", "logsumexp", "max", "min", "median"})
FINDS = frozenset({"nonzero", "where", "squeeze", "flatten", "view"})
LABELS = TARGETS | {"tgt", "tgts", "gold", "truth", "gt", "answers", "answer"}
LIBRARIES = frozenset({"torch", "F", "np", "numpy", "functional"})


def rows_regrouped(tree: ast.Module) -> Iterator[int]:
    """The line that brings the rows into another order."""
    if _joins_labels(tree):
        return
    for scope in (one for one in walk(tree) if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))):
        yield from sorted({*_sorted(scope), *_grouped(scope)})[:1]


# -- sorted ------------------------------------------------------------------------------------------------------------


def _sorted(scope: Scope) -> Iterator[int]:
    """Rows that are taken in the order of a sort, for slices of one group each or for a packed sequence."""
    nodes = statements(scope)
    called = {last_name(one.func) for one in nodes if isinstance(one, ast.Call)}
    if not ("pack_padded_sequence" in called or (called & SPLITS and called & JOINS)):
        return
    for one in nodes:
        if isinstance(one, ast.Subscript) and isinstance(one.slice, ast.Call):
            is_order = last_name(one.slice.func) == "argsort" and _times(nodes, "argsort") == 1
            taken = [one] if is_order else []
        elif isinstance(one, ast.Assign) and (order := _order_of(one)):
            orders = {order, *(name for each in nodes for name in _renamed(each, order))}
            taken = [
                each for each in nodes if isinstance(each, ast.Subscript) and any(_is_index(each, o) for o in orders)
            ]
            reads = [each for each in nodes if isinstance(each, ast.Name) and each.id in orders]
            taken = taken if len(reads) == len(taken) + 2 * len(orders) - 1 else []  # and where they are assigned
        else:
            continue
        if taken and not any(words(each.value) & LABELS for each in taken) and _is_returned(scope, taken):
            yield one.lineno


def _renamed(node: ast.AST, order: str) -> list[str]:
    """Other names that the order is given."""
    is_name = isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and node.value.id == order
    return [last_name(one) for one in node.targets] if is_name and isinstance(node, ast.Assign) else []


def _times(nodes: Sequence[ast.AST], name: str) -> int:
    return sum(isinstance(one, ast.Call) and last_name(one.func) == name for one in nodes)


def _order_of(node: ast.Assign) -> str:
    """``order`` of ``order = key.argsort()`` and of ``key, order = key.sort()``, "" of all others."""
    target, value, of_sort = node.targets[0], node.value, False
    is_second = isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Constant) and value.slice.value == 1
    if is_second or (isinstance(value, ast.Attribute) and value.attr == "indices"):
        assert isinstance(value, (ast.Subscript, ast.Attribute))
        value, of_sort = value.value, True
    called = last_name(value.func) if isinstance(value, ast.Call) else ""
    if isinstance(target, ast.Name) and (called == "argsort" or (called == "sort" and of_sort)):
        return target.id
    if isinstance(target, ast.Tuple) and called == "sort" and len(target.elts) == 2:
        return last_name(target.elts[1])
    return ""


def _is_index(node: ast.AST, order: str) -> bool:
    """Whether ``node`` is ``x[order]``, read and not written."""
    if not isinstance(node, ast.Subscript) or not isinstance(node.ctx, ast.Load):
        return False
    return any(isinstance(one, ast.Name) and one.id == order for one in _indices(node))


def _indices(node: ast.Subscript) -> list[ast.expr]:
    return node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]


# -- group by group ----------------------------------------------------------------------------------------------------


def _grouped(scope: Scope) -> Iterator[int]:
    """``torch.cat([experts[i](x[chosen == i]) for i in range(n)])``, also where a loop fills the list."""
    nodes = statements(scope)
    if any(draws(one.value) for one in nodes if isinstance(one, ast.Assign)):
        return  # rows of noise have no order
    for one in nodes:
        if isinstance(one, ast.ListComp) and len(one.generators) == 1:
            loop = names_stored(one.generators[0].target)
            if _computes_group(one.elt, loop, set()) and _is_joined(scope, one, ""):
                yield one.lineno
        elif isinstance(one, ast.For):
            yield from _filled(scope, one)


def _filled(scope: Scope, loop: ast.For) -> Iterator[int]:
    counted = names_stored(loop.target)
    body = [each for part in loop.body for each in (part, *statements(part))]
    masks = {
        dotted(each.targets[0])
        for each in body
        if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name) and _finds_group(each.value, counted)
    }
    masks = {one for one in masks if _is_used_once(scope, one)}
    kept = {
        dotted(one.targets[0]): one.value
        for one in body
        if isinstance(one, ast.Assign) and isinstance(one.value, ast.Call)
    }
    added = [
        one
        for one in body
        if isinstance(one, ast.Call) and last_name(one.func) == "append" and isinstance(one.func, ast.Attribute)
    ]
    values = [(one, kept.get(dotted(one.args[0]), one.args[0])) for one in added if one.args]
    if any(_is_group(value, counted, masks) for _, value in values):
        return  # rows that are kept beside what is computed tell the order
    for call, value in values:
        if _computes_group(value, counted, masks) and isinstance(call.func, ast.Attribute):
            filled = dotted(call.func.value)
            if filled and _is_joined(scope, None, filled):
                yield call.lineno


def _is_used_once(scope: Scope, mask: str) -> bool:
    """Whether a mask of rows only takes rows and is tested for any: nothing is put back with it."""
    nodes = statements(scope)
    uses = [one for one in nodes if isinstance(one, ast.Name) and one.id == mask]
    taken = [one for one in nodes if _is_index(one, mask) or _is_selection(one, {mask})]
    tests = [each for one in nodes if isinstance(one, ast.If) for each in walk(one.test) if each in uses]
    return len(uses) == len(taken) + len(tests) + 1


def _computes_group(value: ast.AST, loop: set[str], masks: set[str]) -> bool:
    """Whether a module of the model is called with the rows of a group in ``value``."""
    for call in (one for one in walk(value) if isinstance(one, ast.Call)):
        holder = dotted(call.func).split(".")[0]
        own = isinstance(call.func, ast.Subscript) or holder in loop | {"self"}
        if own and holder not in LIBRARIES and any(_is_group(one, loop, masks) for one in call.args):
            return True
    return False


def _is_group(node: ast.AST, loop: set[str], masks: set[str]) -> bool:
    """Whether ``node`` takes the rows of a group: ``x[group == i]``, ``x[mask]``, ``x.index_select(0, mask)``."""
    if _is_selection(node, masks):
        return True
    if not isinstance(node, ast.Subscript):
        return False
    return any(_is_mask(one, loop) or (isinstance(one, ast.Name) and one.id in masks) for one in _indices(node))


def _is_selection(node: ast.AST, masks: set[str]) -> bool:
    return (
        isinstance(node, ast.Call)
        and last_name(node.func) == "index_select"
        and bool(node.args)
        and last_name(node.args[-1]) in masks
    )


def _finds_group(value: ast.AST, loop: set[str]) -> bool:
    """``group == i``, ``(group == i).nonzero()``, ``torch.where(group == i)[0]``."""
    calls = names_called(value)
    return calls <= FINDS and any(_is_mask(one, loop) for one in walk(value))


def _is_mask(node: ast.AST, loop: set[str]) -> bool:
    """Whether ``node`` is ``group == i``, with the variable of a loop."""
    return (
        isinstance(node, ast.Compare)
        and len(node.ops) == 1
        and isinstance(node.ops[0], ast.Eq)
        and any(names_read(one) and names_read(one) <= loop for one in (node.left, node.comparators[0]))
    )


def _is_joined(scope: Scope, listed: ast.ListComp | None, name: str) -> bool:
    """Whether a list is joined to one tensor, which the function returns as it is."""
    if listed is not None:
        name = next(
            (
                dotted(t)
                for one in statements(scope)
                if isinstance(one, ast.Assign) and one.value is listed
                for t in one.targets
            ),
            "",
        )
    joins = [
        one
        for one in statements(scope)
        if isinstance(one, ast.Call)
        and last_name(one.func) in JOINS
        and one.args
        and (one.args[0] is listed or (name and dotted(one.args[0]) == name))
    ]
    return bool(joins) and _is_returned(scope, joins)


# -- what is returned --------------------------------------------------------------------------------------------------


def _is_returned(scope: Scope, sources: Sequence[ast.AST]) -> bool:
    """Whether the function returns what is made of ``sources``, and not only a mean over all rows."""
    nodes = statements(scope)
    parts = {id(one) for one in sources}
    derived: set[str] = set()

    def follows(value: ast.AST) -> bool:
        return bool(names_read(value) & derived) or any(id(each) in parts for each in walk(value))

    for one in nodes:
        if isinstance(one, (ast.Assign, ast.AugAssign)) and follows(one.value):
            targets = one.targets if isinstance(one, ast.Assign) else [one.target]
            derived |= {name for target in targets for name in (*names_stored(target), dotted(target)) if name}
        elif isinstance(one, ast.For) and follows(one.iter):
            derived |= names_stored(one.target)
        elif isinstance(one, ast.Call) and last_name(one.func) == "append" and any(map(follows, one.args)):
            derived |= {dotted(one.func.value)} if isinstance(one.func, ast.Attribute) else set()
    returned = [one.value for one in nodes if isinstance(one, ast.Return) and one.value is not None]
    return any(
        follows(part) and not _averages(part)
        for value in returned
        for part in (value.elts if isinstance(value, ast.Tuple) else [value])
    )


def _averages(value: ast.AST) -> bool:
    return any(
        isinstance(one, ast.Call)
        and last_name(one.func) in REDUCES
        and (not one.args or (isinstance(one.func, ast.Attribute) and dotted(one.func.value) == "torch"))
        for one in walk(value)
    )


def _joins_labels(tree: ast.Module) -> bool:
    """Whether labels are joined group by group somewhere."""
    return any(
        isinstance(one, ast.Call)
        and last_name(one.func) in JOINS
        and any(
            isinstance(each, ast.Subscript)
            and words(each.value) & LABELS
            and any(isinstance(part, ast.Compare) for part in walk(each.slice))
            for each in walk(one)
        )
        for one in walk(tree)
    )
