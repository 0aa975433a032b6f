"""Finds a derivative of a derivative in the source: ``torch.autograd.grad`` of what it gave before.

A model of ReLUs is linear in pieces, so such a derivative of it is zero wherever it exists (``flat_derivatives`` sees
in the graph of the loss which model it is).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from steadytrain.capture.looks.derivative_calls import is_derivative
from steadytrain.capture.looks.syntax_trees import Scope, dotted, last_name, names_read, scopes, statements, walk

FUNCTIONS_MAX = 256


def repeated_derivatives(tree: ast.Module) -> Iterator[int]:
    """The line of the second derivative."""
    functions = list(scopes(tree))[:FUNCTIONS_MAX]
    own = {scope.name for scope in functions if not isinstance(scope, ast.Module) and _returns_derivative(scope)}
    for scope in functions:
        yield from _in_scope(scope, own)


def _returns_derivative(function: Scope) -> bool:
    """Whether the function gives a derivative of its first argument, which keeps its graph."""
    if isinstance(function, ast.Module):
        return False
    arguments = [one.arg for one in function.args.args if one.arg != "self"]
    of_first = any(
        is_derivative(one) and _keeps_graph(one) and one.args and arguments and arguments[0] in names_read(one.args[0])
        for one in walk(function)
        if isinstance(one, ast.Call)
    )
    return of_first and any(isinstance(one, ast.Return) and one.value is not None for one in walk(function))


def _in_scope(scope: Scope, own: set[str]) -> Iterator[int]:
    derivatives: set[str] = set()
    for node in statements(scope):
        if isinstance(node, ast.Call) and _derives(node, own) and node.args:
            inner = [one for one in walk(node.args[0]) if isinstance(one, ast.Call) and _derives(one, own)]
            if inner or names_read(node.args[0]) & derivatives:
                yield node.lineno
        if isinstance(node, ast.Assign):
            names = {one.id for target in node.targets for one in walk(target) if isinstance(one, ast.Name)}
            made = any(isinstance(one, ast.Call) and _derives(one, own) for one in walk(node.value))
            derivatives = derivatives | names if made or _is_part(node.value, derivatives) else derivatives - names


def _is_part(value: ast.AST, derivatives: set[str]) -> bool:
    """Whether ``value`` is a column or another part of a derivative: ``du[:, 0:1]``."""
    while isinstance(value, ast.Subscript):
        value = value.value
    return isinstance(value, ast.Name) and value.id in derivatives


def _derives(call: ast.Call, own: set[str]) -> bool:
    if is_derivative(call):
        return True
    of_script = not isinstance(call.func, ast.Attribute) or dotted(call.func.value) == "self"
    return of_script and last_name(call.func) in own


def _keeps_graph(call: ast.Call) -> bool:
    given = next((one.value for one in call.keywords if one.arg == "create_graph"), None)
    return given is not None and not (isinstance(given, ast.Constant) and given.value is False)
