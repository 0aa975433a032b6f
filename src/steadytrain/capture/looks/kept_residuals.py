"""Finds a residual of compressed gradients that keeps what was sent.

Error feedback adds the residual to the gradient, sends the largest values, and keeps the rest. Found is a function
with a ``topk`` that stores the whole sum as the new residual: nothing in it takes out what was sent, or only after a
copy was stored, or only from a copy (``changed_copies``).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from steadytrain.capture.looks.changed_copies import compresses, lost_changes
from steadytrain.capture.looks.syntax_trees import Scope, assignments, dotted, last_name, scopes, statements, walk

MEMORY = re.compile(r"(?i)(\w+\.)?_?\w*(resid|memor|error|feedback|carry|left_?over|backlog|unsent|err_|_err)\w*")
COPIES = frozenset({"clone", "detach", "contiguous", "copy", "deepcopy"})
VIEWS = frozenset({"view", "flatten", "reshape", "ravel", "view_as"})
REDUCES = frozenset({"sub_", "mul_", "zero_", "index_fill_", "masked_fill_", "scatter_", "index_copy_", "scatter_add_"})


def kept_residuals(tree: ast.Module) -> Iterator[int]:
    """The lines that store such a residual."""
    for scope in scopes(tree):
        if compresses(scope):
            yield from _stored_whole(scope)
            yield from lost_changes(scope)


def _stored_whole(scope: Scope) -> Iterator[int]:
    nodes = statements(scope)
    pairs = list(assignments(nodes))
    sums = {dotted(target) for target, value in pairs if isinstance(target, ast.Name) and _adds_memory(value)}
    for target, value in pairs:
        memory = _base(target)
        if isinstance(target, ast.Name) or not MEMORY.fullmatch(memory):
            continue
        name, copied = _name_of(value)
        if name not in sums:
            continue
        names, changes = _names_of(name, pairs), list(_reduced(nodes))
        of_memory = [line for line, changed in changes if changed == memory and line != target.lineno]
        of_sum = [line for line, changed in changes if changed in names]
        if not of_memory and not [line for line in of_sum if not copied or line < value.lineno]:
            yield target.lineno


def _base(target: ast.expr) -> str:
    """``self.memory`` of ``self.memory[name]``."""
    return _base(target.value) if isinstance(target, ast.Subscript) else dotted(target)


def _adds_memory(value: ast.expr) -> bool:
    """Whether a value is a sum with the residual."""
    added = any(isinstance(one, ast.BinOp) and isinstance(one.op, ast.Add) for one in walk(value))
    added = added or any(isinstance(one, ast.Call) and last_name(one.func) in ("add", "add_") for one in walk(value))
    parts = [one for one in walk(value) if isinstance(one, (ast.Attribute, ast.Name))]
    taken_off = any(isinstance(one, ast.BinOp) and isinstance(one.op, ast.Sub) for one in walk(value))
    return added and not taken_off and any(MEMORY.fullmatch(dotted(one)) for one in parts)


def _name_of(value: ast.expr) -> tuple[str, bool]:
    """The name of what is stored, and whether a copy of it is; "" of all others."""
    copied = False
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        if value.func.attr in COPIES and not value.args:
            copied = copied or value.func.attr not in ("detach", "contiguous")
        elif value.func.attr not in VIEWS:
            return "", False
        value = value.func.value
    return (value.id, copied) if isinstance(value, ast.Name) else ("", False)


def _names_of(name: str, pairs: list[tuple[ast.expr, ast.expr]]) -> set[str]:
    """The name and those of views of it."""
    found = {name}
    for target, value in pairs:
        if isinstance(target, ast.Name) and isinstance(value, ast.Call) and last_name(value.func) in VIEWS:
            inner, _ = _name_of(value)
            if inner in found:
                found.add(target.id)
    return found


def _reduced(nodes: tuple[ast.AST, ...]) -> Iterator[tuple[int, str]]:
    """The lines that take something out of a tensor, with its name."""
    for one in nodes:
        if isinstance(one, ast.Assign):
            for target in one.targets:
                if isinstance(target, ast.Subscript) and not isinstance(one.value, ast.Name):
                    yield one.lineno, _base(target)
        elif isinstance(one, ast.AugAssign) and isinstance(one.op, (ast.Sub, ast.Mult)):
            yield one.lineno, _base(one.target)
        elif isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and one.func.attr in REDUCES:
            value = one.func.value
            yield one.lineno, dotted(value) if not isinstance(value, ast.Subscript) else _base(value)
