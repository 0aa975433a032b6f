"""Finds the best model or state that is kept as a reference, goes on training, and is used or saved at the end.

The mistake has four parts: a comparison in a loop that trains, whose body keeps the better score; in the same body a
second name of the model, or its ``state_dict()`` without a copy; nothing there that saves it or leaves the loop; and a
use of that name after the loop.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from steadytrain.capture.looks.syntax_trees import Scope, dotted, last_name, scopes, statements, walk

TRAINS = re.compile(r"(?i).*(train|fit|step|backward|epoch|learn|optimi[sz]e|update).*")
SAVES = re.compile(r"(?i).*(save|dump|checkpoint|write|export|upload|copy|clone).*")
ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
Loop = ast.For | ast.AsyncFor | ast.While


def kept_by_reference(tree: ast.Module) -> Iterator[int]:
    """The line that keeps it."""
    trained = set(_trained(tree))
    for scope in scopes(tree):
        for loop in (one for one in statements(scope) if isinstance(one, (ast.For, ast.AsyncFor, ast.While))):
            if not any(TRAINS.fullmatch(last_name(one.func)) for one in _own(loop) if isinstance(one, ast.Call)):
                continue
            stored = _stored(loop)
            for branch in (one for one in _own(loop) if isinstance(one, ast.If) and keeps_score(one)):
                if any(_ends(one) for each in branch.body for one in walk(each)):
                    continue
                for name, model, is_state, line in _kept(branch):
                    known = is_state or model in trained
                    if known and model not in stored and _is_used(tree, scope, loop, name, model):
                        yield line


def keeps_score(branch: ast.If) -> bool:
    """``if score > best:`` with ``best = score`` in its body."""
    kept = list(assigned(branch.body))
    for test in (one for one in walk(branch.test) if isinstance(one, ast.Compare) and len(one.ops) == 1):
        if isinstance(test.ops[0], ORDERS):
            for best, score in ((test.left, test.comparators[0]), (test.comparators[0], test.left)):
                names = {dotted(one) for one in walk(score) if isinstance(one, (ast.Name, ast.Attribute))} - {""}
                wanted = {ast.unparse(best), *(one.id for one in walk(best) if isinstance(one, ast.Name))}
                if any(ast.unparse(target) in wanted and names & _read(value) for target, value in kept):
                    return True
    return False


def _kept(branch: ast.If) -> Iterator[tuple[str, str, bool, int]]:
    """The name, the model, whether it is its state, and the line of what the body keeps by reference."""
    for target, value in assigned(branch.body):
        held = target.value if isinstance(target, ast.Subscript) else target
        parts = value.values if isinstance(value, ast.Dict) else [value]
        for part in parts:
            state = isinstance(part, ast.Call) and not part.args and last_name(part.func) == "state_dict"
            source = part.func if state and isinstance(part, ast.Call) else part
            model = dotted(source.value) if state and isinstance(source, ast.Attribute) else dotted(source)
            if dotted(held) and model and dotted(held) != model:
                yield dotted(held), model.removesuffix(".module"), state, part.lineno


def assigned(body: Sequence[ast.AST]) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Targets and values of the assignments in ``body``, those of tuples in pairs."""
    for node in (one for each in body for one in walk(each) if isinstance(one, (ast.Assign, ast.AnnAssign))):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                yield from zip(target.elts, node.value.elts, strict=False)
            elif node.value is not None:
                yield target, node.value


def _ends(node: ast.AST) -> bool:
    """Whether it saves or copies the model, or leaves the loop."""
    saves = isinstance(node, ast.Call) and SAVES.fullmatch(last_name(node.func)) is not None
    return saves or isinstance(node, (ast.Break, ast.Return))


def _is_used(tree: ast.Module, scope: Scope, loop: Loop, name: str, model: str) -> bool:
    """Whether ``name`` is read after the loop, and not only loaded back into the model."""
    last = loop.end_lineno or loop.lineno
    where = tree if "." in name or isinstance(scope, ast.Module) else scope
    for node in walk(where):
        if isinstance(node, ast.Call) and last_name(node.func) in ("load_state_dict", "deepcopy"):
            loaded = dotted(node.func.value) if isinstance(node.func, ast.Attribute) else ""
            if name in _read(node) and loaded.removesuffix(".module") in (model, "copy", ""):
                return False
    inside = {id(one) for one in walk(loop)}
    for node in walk(where):
        if not isinstance(node, (ast.Name, ast.Attribute)) or not isinstance(node.ctx, ast.Load):
            continue
        if dotted(node) == name and id(node) not in inside and (node.lineno > last or where is not scope):
            return True
    return False


def _trained(tree: ast.Module) -> Iterator[str]:
    """Names whose parameters are asked for, or that are put in training mode."""
    for node in walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = dotted(node.func.value) if node.func.attr in ("parameters", "train") else ""
            if name:
                yield name


def _own(loop: Loop) -> Iterator[ast.AST]:
    """The nodes of a loop in which it is the innermost one with a comparison that keeps a score."""
    for child in ast.iter_child_nodes(loop):
        yield from _without_loops(child)


def _without_loops(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
        return
    if isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
        yield from (one for one in walk(node) if isinstance(one, ast.Call))
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _without_loops(child)


def _stored(loop: Loop) -> set[str]:
    """Names and attributes that are assigned anywhere in a loop."""
    nodes = (one for one in walk(loop) if isinstance(one, (ast.Name, ast.Attribute)))
    return {dotted(one) for one in nodes if isinstance(one.ctx, ast.Store)}


def _read(node: ast.AST) -> set[str]:
    return {dotted(one) for one in walk(node) if isinstance(one, (ast.Name, ast.Attribute))} - {""}
