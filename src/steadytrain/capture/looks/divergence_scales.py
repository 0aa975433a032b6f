"""Finds a divergence of a distillation that is averaged over classes too, or lacks the square of its temperature.

Both make the term small beside the loss of the labels. A result that the same statement multiplies by a size, and a
file that squares its temperature anywhere, are left alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from steadytrain.capture.looks.syntax_trees import dotted, last_name, scopes, statements, walk

SIZE = re.compile(r"(?i)size|shape|numel|len|.*class.*|.*vocab.*|c|k|n_out\w*|.*dim")
LABELS = re.compile(r"(?i)(f\.)?cross_entropy|.*(ce|criterion|cross_?entropy\w*|nll\w*|hard)_?(loss|fn)?\w*")
SOFT = ("softmax", "log_softmax")
ARGUMENTS_MIN, REDUCTION_AT = 2, 4


def averaged_divergences(tree: ast.Module) -> Iterator[int]:
    """The line of ``kl_div(...)`` or ``KLDivLoss()`` that takes the mean over all elements."""
    for scope in scopes(tree):
        for statement in _statements(scope):
            calls = [one for one in walk(statement) if isinstance(one, ast.Call) and _is_mean(one)]
            sizes = (last_name(one) for one in walk(statement) if isinstance(one, (ast.Name, ast.Attribute)))
            if calls and not any(map(SIZE.fullmatch, sizes)):
                yield calls[0].lineno


def unsquared_temperatures(tree: ast.Module) -> Iterator[int]:
    """The line of a divergence of two softmaxes with one temperature beside a loss of the labels."""
    if any(_is_square(one) for one in walk(tree)):
        return
    for scope in scopes(tree):
        nodes = statements(scope)
        made = {dotted(one.targets[0]): one.value for one in nodes if isinstance(one, ast.Assign)}
        kept = [one for one in nodes if isinstance(one, ast.Call)]
        if not any(LABELS.fullmatch(dotted(one.func)) for one in kept):
            continue
        for call in kept:
            if not _is_divergence(call) or len(call.args) < ARGUMENTS_MIN:
                continue
            one, other = (_temperature(made.get(dotted(each), each)) for each in call.args[:ARGUMENTS_MIN])
            if one and one == other and not any(_scales(each, call) for each in nodes):
                yield call.lineno


def _statements(scope: ast.AST) -> Iterator[ast.AST]:
    """Simple ones: not those that hold others."""
    for one in statements(scope):
        if isinstance(one, ast.stmt) and not any(isinstance(each, ast.stmt) for each in ast.iter_child_nodes(one)):
            yield one


def _is_divergence(call: ast.Call) -> bool:
    made = call.func
    return last_name(made) == "kl_div" or (isinstance(made, ast.Call) and last_name(made.func) == "KLDivLoss")


def _is_mean(call: ast.Call) -> bool:
    """Whether the reduction is left out, or is the mean."""
    name, known = last_name(call.func), {one.arg: one.value for one in call.keywords}
    if name == "KLDivLoss":
        places = 2
    elif name == "kl_div" and dotted(call.func).split(".")[0] in ("F", "torch", "nn", "functional", "kl_div"):
        places = REDUCTION_AT
    else:
        return False
    if None in known or known.keys() & {"size_average", "reduce"} or len(call.args) > places:
        return False
    value = known.get("reduction")
    return value is None or (isinstance(value, ast.Constant) and value.value == "mean")


def _temperature(value: ast.expr) -> str:
    """The divisor of the scores in ``log_softmax(scores / T)`` or ``(scores / T).softmax(-1)``; "" if none."""
    for one in walk(value):
        if isinstance(one, ast.Call) and last_name(one.func) in SOFT:
            inside = one.args[0] if one.args and not isinstance(one.args[0], ast.Constant) else None
            owner = one.func.value if isinstance(one.func, ast.Attribute) else None
            for scores in (inside, owner):
                if isinstance(scores, ast.BinOp) and isinstance(scores.op, ast.Div):
                    divisor = ast.unparse(scores.right)
                    return divisor if not isinstance(scores.right, ast.Constant) else ""
    return ""


def _is_square(node: ast.AST) -> bool:
    """``T * T``, ``T ** 2``, ``pow(T, 2)``, ``T.pow(2)``, of any variable."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        return True
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        right = dotted(node.right)
        left = node.left.right if isinstance(node.left, ast.BinOp) else node.left
        return bool(right) and dotted(left) == right
    return isinstance(node, ast.Call) and last_name(node.func) in ("pow", "square")


def _scales(node: ast.AST, call: ast.Call) -> bool:
    """Whether ``node`` multiplies the divergence by a number above 1, which may be the square."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
        return False
    sides = (node.left, node.right)
    numbers = [one.value for one in sides if isinstance(one, ast.Constant)]
    return any(isinstance(one, (int, float)) and one > 1.0 for one in numbers) and any(one is call for one in sides)
