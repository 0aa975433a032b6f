"""Finds losses that are summed or listed over a loop together with their graphs: ``total += loss`` without ``item``.

The mistake has four parts: a loop that calls ``backward`` on a loss; the same variable, not a number made of it, that
is added or appended to another one; which is made before the loop and never again in it; and on which, or on what is
made of it, nobody calls ``backward``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from steadytrain.capture.looks.syntax_trees import (
    dotted,
    last_name,
    names_read,
    scopes,
    statements,
    walk,
    with_graph,
)

TENSOR_METHODS = frozenset({"cpu", "cuda", "to", "float", "mean", "sum", "squeeze", "clone"})
"""Methods whose result has the graph of their tensor."""

NUMBERS = frozenset({"item", "detach", "tolist", "numpy", "float", "detach_"})
EMPTIES = frozenset({"clear", "pop"})
AGAIN = frozenset({"retain_graph", "create_graph"})


def kept_graphs(tree: ast.Module) -> Iterator[int]:
    """The line that keeps the losses of the whole training."""
    yield from (line for line, of_all in _found(tree) if of_all)


def kept_in_epoch(tree: ast.Module) -> Iterator[int]:
    """The line that keeps those of one pass, or of one call of a function."""
    yield from (line for line, of_all in _found(tree) if not of_all)


def _found(tree: ast.Module) -> Iterator[tuple[int, bool]]:
    seen: dict[int, bool] = {}
    for scope in scopes(tree):
        for loop in statements(scope):
            if isinstance(loop, (ast.For, ast.AsyncFor, ast.While)):
                outer = isinstance(scope, ast.Module) or any(_is_loop(one) for one in statements(loop))
                for line in _in_loop(scope, loop):
                    seen[line] = seen.get(line, False) or (outer and not _is_inside_another(scope, loop))
    yield from seen.items()


def _is_loop(node: ast.AST) -> bool:
    return isinstance(node, (ast.For, ast.AsyncFor, ast.While))


def _is_inside_another(scope: ast.AST, loop: ast.AST) -> bool:
    others = (one for one in statements(scope) if _is_loop(one) and one is not loop)
    return any(loop is each for one in others for each in statements(one))


def _in_loop(scope: ast.AST, loop: ast.For | ast.AsyncFor | ast.While) -> Iterator[int]:
    losses: set[str] = set()
    for call in statements(loop):
        if isinstance(call, ast.Call) and last_name(call.func) == "backward":
            if any(one.arg in AGAIN for one in call.keywords):
                return
            losses |= _backwarded(call)
    losses -= {name for one in statements(loop) for name, value in _made(one) if _is_number(value)}
    if not losses:
        return
    for node in with_graph(loop):
        kept = _kept_in(node, losses)
        if kept and kept not in losses and _starts_empty(scope, loop, kept) and not _is_backwarded(scope, kept):
            yield node.lineno  # type: ignore[attr-defined]


def _backwarded(call: ast.Call) -> set[str]:
    """The variables whose backward it is: ``loss.backward()``, ``scaler.scale(loss / n).backward()``,
    ``accelerator.backward(loss)``."""
    assert isinstance(call.func, (ast.Attribute, ast.Name))
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    if call.args:
        return names_read(call.args[0])
    if isinstance(owner, ast.Call):
        return {name for one in owner.args for name in names_read(one)}
    return names_read(owner) if owner is not None else set()


def _made(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """The variables that a statement assigns, with their values."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
    for target in targets:
        inside = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
        yield from ((dotted(one), value) for one in inside if value is not None)


def _is_number(value: ast.expr) -> bool:
    return any(isinstance(one, ast.Call) and last_name(one.func) in NUMBERS for one in walk(value)) or any(
        isinstance(one, ast.Attribute) and one.attr == "data" for one in walk(value)
    )


def _kept_in(node: ast.AST, losses: set[str]) -> str:
    """The variable that takes a loss with its graph; "" of other statements."""
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add) and _has_graph(node.value, losses):
        return dotted(node.target)
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp) and isinstance(node.value.op, ast.Add):
        target = dotted(node.targets[0])
        sides = {dotted(node.value.left): node.value.right, dotted(node.value.right): node.value.left}
        return target if target and target in sides and _has_graph(sides[target], losses) else ""
    call = node.value if isinstance(node, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "append":
        return dotted(call.func.value) if len(call.args) == 1 and _has_graph(call.args[0], losses) else ""
    return ""


def _has_graph(value: ast.expr, losses: set[str]) -> bool:
    if isinstance(value, ast.Name):
        return value.id in losses
    if isinstance(value, ast.BinOp):
        return _has_graph(value.left, losses) or _has_graph(value.right, losses)
    method = value.func if isinstance(value, ast.Call) else None
    return isinstance(method, ast.Attribute) and method.attr in TENSOR_METHODS and _has_graph(method.value, losses)


def _starts_empty(scope: ast.AST, loop: ast.AST, name: str) -> bool:
    """Whether the variable is made before the loop, as a number or an empty list, and not again in it."""
    inside = set(map(id, statements(loop)))
    made = [(id(one) in inside, value) for one in statements(scope) for each, value in _made(one) if each == name]
    again = [value for within, value in made if within and name not in {dotted(one) for one in _parts(value)}]
    emptied = any(
        isinstance(one, ast.Attribute) and one.attr in EMPTIES and dotted(one.value) == name for one in statements(loop)
    )
    return not again and not emptied and any(not within and _is_empty(value) for within, value in made)


def _parts(value: ast.expr) -> Iterator[ast.expr]:
    yield value
    if isinstance(value, ast.BinOp):
        yield from (value.left, value.right)


def _is_empty(value: ast.expr) -> bool:
    number = isinstance(value, ast.Constant) and type(value.value) in (int, float)
    return number or (isinstance(value, ast.List) and not value.elts) or ast.unparse(value) == "list()"


def _is_backwarded(scope: ast.AST, name: str) -> bool:
    """Whether a backward is called on the variable, or on what is made of it."""
    of = {name}
    for one in statements(scope):
        of |= {each for each, value in _made(one) if _places(value) & of}
    calls = [one for one in statements(scope) if isinstance(one, ast.Call) and last_name(one.func) == "backward"]
    return any(_places(call) & of for call in calls)


def _places(node: ast.AST) -> set[str]:
    """The variables and attributes in ``node``."""
    return {dotted(one) for one in walk(node) if isinstance(one, (ast.Name, ast.Attribute))}
