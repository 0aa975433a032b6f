"""Takes a sum apart into its terms: ``q + (z - q).detach()`` is q, z without a gradient, and less q without one."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from steadytrain.capture.looks.syntax_trees import dotted, last_name

STOPS = frozenset({"detach", "stop_gradient", "stopgrad", "sg"})
PLUS, MINUS = frozenset({"add", "add_"}), frozenset({"sub", "sub_", "subtract"})
COPIES = frozenset({"clone", "contiguous"})
DEPTH_MAX = 6


@dataclass(frozen=True)
class Term:
    """One term of a sum: its expression, its sign, and whether a gradient reaches it."""

    value: ast.expr
    sign: int
    live: bool

    @property
    def key(self) -> str:
        return ast.unparse(self.value)


@dataclass(frozen=True)
class Given:
    """The only value that a scope gives to a name, and whether a gradient reaches it."""

    value: ast.expr
    live: bool


def is_sum(node: ast.AST) -> bool:
    """Whether ``node`` adds or subtracts, also by a method."""
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, (ast.Add, ast.Sub))
    return isinstance(node, ast.Call) and _sides(node) is not None


def terms(
    node: ast.expr, given: Mapping[str, Given], sign: int = 1, live: bool = True, depth: int = 0
) -> Iterator[Term]:
    """The terms of a sum; a name that is ``given`` a sum, or a part without a gradient, stands for that."""
    if depth > DEPTH_MAX:
        return
    sides = _sides(node)
    if sides is not None:
        left, right, second = sides
        yield from terms(left, given, sign, live, depth + 1)
        yield from terms(right, given, sign * second, live, depth + 1)
        return
    inner = _stopped(node)
    if inner is not None:
        yield from terms(inner, given, sign, False, depth + 1)
        return
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield from terms(node.operand, given, -sign, live, depth + 1)
        return
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in COPIES:
        yield from terms(node.func.value, given, sign, live, depth + 1)
        return
    known = given.get(dotted(node)) if isinstance(node, (ast.Name, ast.Attribute)) else None
    if known is not None and (is_sum(known.value) or _stopped(known.value) is not None):
        yield from terms(known.value, given, sign, live and known.live, depth + 1)
        return
    yield Term(node, sign, live)


def _sides(node: ast.AST) -> tuple[ast.expr, ast.expr, int] | None:
    """Both sides of a sum, and the sign of the second."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
        return node.left, node.right, 1 if isinstance(node.op, ast.Add) else -1
    if not isinstance(node, ast.Call) or node.keywords or last_name(node.func) not in PLUS | MINUS:
        return None
    second = 1 if last_name(node.func) in PLUS else -1
    if isinstance(node.func, ast.Attribute) and dotted(node.func.value) != "torch" and len(node.args) == 1:
        return node.func.value, node.args[0], second
    if dotted(node.func) in ("torch.add", "torch.sub", "torch.subtract") and len(node.args) == 2:
        return node.args[0], node.args[1], second
    return None


def _stopped(node: ast.expr) -> ast.expr | None:
    """``x`` of ``x.detach()``, ``x.data`` and ``stop_gradient(x)``."""
    if isinstance(node, ast.Attribute) and node.attr == "data":
        return node.value
    if not isinstance(node, ast.Call) or last_name(node.func) not in STOPS:
        return None
    if node.args:
        return node.args[0] if len(node.args) == 1 else None
    return node.func.value if isinstance(node.func, ast.Attribute) and node.func.attr == "detach" else None
