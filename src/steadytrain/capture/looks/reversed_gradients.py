"""Finds a gradient that is reversed on purpose, as of an adversary that tells domains apart (1409.7495)."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from steadytrain.capture.looks.syntax_trees import last_name, walk


def reversed_gradients(tree: ast.Module) -> Iterator[int]:
    """The line of an autograd function whose forward hands on its input, and whose backward turns the sign around."""
    for node in walk(tree):
        if not isinstance(node, ast.ClassDef) or not any(last_name(base) == "Function" for base in node.bases):
            continue
        methods = {one.name: one for one in node.body if isinstance(one, ast.FunctionDef)}
        forward, backward = methods.get("forward"), methods.get("backward")
        if forward is None or backward is None:
            continue
        hands_on = all(_is_plain(one.value) for one in walk(forward) if isinstance(one, ast.Return))
        if hands_on and any(_is_negative(_first(one.value)) for one in walk(backward) if isinstance(one, ast.Return)):
            yield node.lineno


def _is_plain(value: ast.expr | None) -> bool:
    """``x``, ``x.view_as(x)`` or ``x.clone()``."""
    if isinstance(value, ast.Call):
        return last_name(value.func) in ("view_as", "clone", "view", "alias", "detach")
    return isinstance(value, ast.Name)


def _first(value: ast.expr | None) -> ast.expr | None:
    return value.elts[0] if isinstance(value, ast.Tuple) and value.elts else value


def _is_negative(value: ast.expr | None) -> bool:
    """``-grad``, ``-strength * grad``, ``grad.neg() * strength``, ``grad * -1``; no clamp between two bounds."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult):
        return _is_negative(value.left) != _is_negative(value.right)
    if isinstance(value, ast.Call):
        return last_name(value.func) in ("neg", "neg_", "negative")
    return isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub)
