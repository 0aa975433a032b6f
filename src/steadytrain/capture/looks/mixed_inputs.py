"""Finds inputs that are mixed with those of other rows (mixup, cutmix), whose labels are not.

The mistake has two parts: ``lam * x + (1 - lam) * x[order]``, or a part of ``x`` that is replaced by that of
``x[order]``; and nothing else of the source is taken in that order, or the labels of the other rows get the weight of
the first ones.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from steadytrain.capture.looks.split_names import TARGETS, words
from steadytrain.capture.looks.syntax_trees import (
    Scope,
    assignments,
    dotted,
    last_name,
    names_read,
    scopes,
    statements,
    walk,
)


def mixed_inputs(tree: ast.Module) -> Iterator[int]:
    """The line that mixes the inputs, or the one that gives the labels the wrong weight."""
    for scope in scopes(tree):
        nodes = statements(scope)
        for one in (each for each in nodes if isinstance(each, (ast.BinOp, ast.Assign))):
            mixed = _mixed(one)
            if mixed is None:
                continue
            inputs, order, share = mixed
            if words(inputs) & TARGETS or not order:
                continue
            others = _taken(nodes, order, inputs)
            if not others and not _is_handed_on(scope, order) and not _reads_labels_elsewhere(tree, order):
                yield one.lineno
            elif share and (line := _swapped(nodes, others, share)):
                yield line


def _mixed(node: ast.AST) -> tuple[ast.expr, str, str] | None:
    """The inputs, the name of the order, and that of the share of the rows themselves ("" of a part that is put in)."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        for share, one in _weighted(node.left):
            for rest, other in _weighted(node.right):
                found = _of_two_rows(share, one, rest, other) or _of_two_rows(rest, other, share, one)
                if found is not None:
                    return found
        return None
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        put, value = node.targets[0], node.value
        if isinstance(value, ast.Subscript) and dotted(put.value) and dotted(put.value) == dotted(value.value):
            firsts = [one.slice.elts[0] for one in (put, value) if isinstance(one.slice, ast.Tuple)]
            if len(firsts) == 2 and isinstance(firsts[0], ast.Slice) and isinstance(firsts[1], ast.Name):
                return put.value, firsts[1].id, ""
    return None


def _of_two_rows(share: ast.expr, one: ast.expr, rest: ast.expr, other: ast.expr) -> tuple[ast.expr, str, str] | None:
    """What :func:`_mixed` returns, of ``share * one + rest * other`` where ``rest`` is one minus ``share``."""
    if _is_rest(share) or not _is_rest(rest) or not names_read(share) or names_read(rest) != names_read(share):
        return None
    for plain, taken, weight in ((one, other, share), (other, one, rest)):
        order = _order(plain, taken)
        if order:
            return plain, order, dotted(weight) if weight is share else ""
    return None


def _weighted(value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    """The factor and the rows of ``lam * x``, and the other way round; empty if ``value`` is no product."""
    if not (isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult)):
        return []
    return [(value.left, value.right), (value.right, value.left)]


def _is_rest(value: ast.expr) -> bool:
    """Whether ``value`` is ``1 - lam``."""
    return (
        isinstance(value, ast.BinOp)
        and isinstance(value.op, ast.Sub)
        and isinstance(value.left, ast.Constant)
        and value.left.value == 1
    )


def _order(plain: ast.expr, taken: ast.expr) -> str:
    """``order`` of ``x`` and ``x[order]``, "" if they are other rows."""
    if not isinstance(taken, ast.Subscript) or ast.dump(taken.value) != ast.dump(plain):
        return ""
    first = taken.slice.elts[0] if isinstance(taken.slice, ast.Tuple) and taken.slice.elts else taken.slice
    return last_name(first) if isinstance(first, (ast.Name, ast.Attribute)) else ""


def _taken(nodes: tuple[ast.AST, ...], order: str, inputs: ast.expr) -> set[str]:
    """The names of what else is taken in this order: ``y`` of ``y[order]``, and the variable that it is given to."""
    found: set[str] = set()
    for one in nodes:
        subscripts = (
            [each for each in walk(one) if isinstance(each, ast.Subscript)] if isinstance(one, ast.stmt) else []
        )
        names = {dotted(each.value) for each in subscripts if order in names_read(each.slice)} - {dotted(inputs), ""}
        if names:
            found |= names
            found |= {dotted(target) for target in one.targets} if isinstance(one, ast.Assign) else set()
            if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Tuple):
                found |= {last_name(each) for each in one.targets[0].elts}
    return found


def _is_handed_on(scope: Scope, order: str) -> bool:
    """Whether the order leaves the scope, or is given to a function."""
    nodes = statements(scope)
    returned = any(
        isinstance(one, ast.Return) and one.value is not None and order in names_read(_without_subscripts(one.value))
        for one in nodes
    )
    calls = [one for one in nodes if isinstance(one, ast.Call)]
    return returned or any(isinstance(each, ast.Name) and each.id == order for one in calls for each in one.args)


def _without_subscripts(value: ast.expr) -> ast.expr:
    parts = value.elts if isinstance(value, ast.Tuple) else [value]
    return ast.Tuple([one for one in parts if not isinstance(one, (ast.Subscript, ast.BinOp))], ast.Load())


def _reads_labels_elsewhere(tree: ast.Module, order: str) -> bool:
    """Whether labels are taken in an order of that name in another function."""
    return any(
        isinstance(one, ast.Subscript) and words(one.value) & TARGETS and order in names_read(one.slice)
        for one in walk(tree)
    )


def _swapped(nodes: Sequence[ast.AST], others: set[str], share: str) -> int:
    """The line of ``lam * loss(out, y[order])``, where ``lam`` is the share of the rows themselves; 0 without."""
    second = _second_labels(nodes, others)
    for one in (each for each in nodes if isinstance(each, ast.BinOp)):
        for call in (value for factor, value in _weighted(one) if dotted(factor) == share):
            if isinstance(call, ast.Call) and any(dotted(each) in second for each in call.args[1:2]):
                return one.lineno
    return 0


def _is_taken(node: ast.AST, others: set[str]) -> bool:
    return isinstance(node, ast.Subscript) and dotted(node.value) in others


def _second_labels(nodes: Sequence[ast.AST], others: set[str]) -> set[str]:
    """The variables that hold labels of the other rows: ``y_b`` of ``y_a, y_b = y, y[order]``."""
    return {dotted(name) for name, value in assignments(nodes) if _is_taken(value, others)} - {""}
