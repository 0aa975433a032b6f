"""Small questions about a syntax tree: scopes, names, dotted names of calls."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import cast

Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef
DRAWN = re.compile(
    r"rand|rand_like|randn|randn_like|randint|randperm|random|randrange|uniform_?|normal|choices?|bernoulli|integers"
    r"|gauss|permutation|binomial|getrandbits"
)
"""Names of functions that draw random numbers."""


def walk(node: ast.AST) -> tuple[ast.AST, ...]:
    """``ast.walk(node)``, kept at the node: many rules ask for the same parts of one tree, and none changes it."""
    below = vars(node).get("_below")
    if below is None:
        found = list(_children(node))
        for one in found:  # grows while it is read
            found.extend(_children(one))
        if not found:  # ast.Load and the like, too, of which the process has one each: nothing is put there
            return (node,)
        below = vars(node)["_below"] = tuple(found)  # without itself: a cycle would outlive the reading
    return (node, *below)


def _children(node: ast.AST) -> tuple[ast.AST, ...]:
    if not node._fields:
        return ()
    kept = vars(node).get("_children")
    if kept is None:
        kept = vars(node)["_children"] = tuple(ast.iter_child_nodes(node))
    return cast("tuple[ast.AST, ...]", kept)


def scopes(tree: ast.Module) -> Iterator[Scope]:
    """The module and all functions in it."""
    yield tree
    for node in walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node


def statements(scope: ast.AST) -> tuple[ast.AST, ...]:
    """All nodes of a scope in the order of the source, without those of functions and classes inside."""
    kept = vars(scope).get("_statements")
    if kept is None:
        kept = vars(scope)["_statements"] = tuple(_in_order(scope))
    return cast("tuple[ast.AST, ...]", kept)


def _in_order(scope: ast.AST) -> Iterator[ast.AST]:
    for child in _children(scope):
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield child
            yield from _in_order(child)


def argument_names(scope: Scope) -> set[str]:
    """The names of the arguments of a function; none of a module."""
    if isinstance(scope, ast.Module):
        return set()
    return {one.arg for one in (*scope.args.args, *scope.args.kwonlyargs)}


def body_of(loop: ast.For | ast.AsyncFor | ast.While) -> tuple[ast.AST, ...]:
    """All nodes of the body of a loop in the order of the source, without those of functions and classes inside."""
    kept = vars(loop).get("_body")
    if kept is None:
        kept = vars(loop)["_body"] = tuple(_in_order(ast.Module(loop.body, [])))
    return cast("tuple[ast.AST, ...]", kept)


def given_values(node: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Each target with its value: ``a`` with 1 and ``b`` with 2 of ``a, b = 1, 2``, and both values of a choice between
    two such tuples."""
    value = node.value
    values = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
    for target in node.targets:
        if isinstance(target, ast.Tuple) and all(isinstance(one, ast.Tuple) for one in values):
            for one in values:
                assert isinstance(one, ast.Tuple)
                yield from zip(target.elts, one.elts, strict=False)
        else:
            yield target, value


def assignments(nodes: Iterable[ast.AST]) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Each target of the plain assignments among ``nodes``, with its value."""
    for node in nodes:
        if isinstance(node, ast.Assign):
            yield from given_values(node)


def dotted(node: ast.expr) -> str:
    """``self.augment`` of such an expression, "" of any other than names and attributes."""
    if isinstance(node, ast.Name):
        return node.id
    head = dotted(node.value) if isinstance(node, ast.Attribute) else ""
    return f"{head}.{node.attr}" if head and isinstance(node, ast.Attribute) else ""


def names_called(node: ast.AST) -> set[str]:
    """The last names of all functions that are called in ``node``: ``randn`` of ``torch.randn(3)``."""
    return {last_name(one.func) for one in walk(node) if isinstance(one, ast.Call)}


def number_of(value: ast.expr | None) -> int | float | None:
    """The number that is written there, with its sign; None of all others."""
    if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub):
        inner = number_of(value.operand)
        return None if inner is None else -inner
    return value.value if isinstance(value, ast.Constant) and type(value.value) in (int, float) else None  # type: ignore[return-value]


def last_name(node: ast.expr) -> str:
    """``augment`` of ``self.augment`` and of ``augment``."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def draws(node: ast.AST) -> bool:
    """Whether a call in ``node`` draws random numbers by its name."""
    return any(isinstance(one, ast.Call) and DRAWN.fullmatch(last_name(one.func)) for one in walk(node))


def names_read(node: ast.AST) -> set[str]:
    """The variables that are read anywhere in ``node``."""
    return {one.id for one in walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}


def names_stored(node: ast.AST) -> set[str]:
    """The variables that are assigned anywhere in ``node``."""
    return {one.id for one in walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}


def stops_graph(context: ast.expr) -> bool:
    """Whether a context or a decorator is ``no_grad`` or ``inference_mode``, called or not."""
    return last_name(context.func if isinstance(context, ast.Call) else context) in ("no_grad", "inference_mode")


def with_graph(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a scope in the order of the source, without those of functions inside and under ``no_grad``."""
    for child in _children(scope):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        if isinstance(child, ast.With) and any(stops_graph(one.context_expr) for one in child.items):
            continue
        yield child
        yield from with_graph(child)
