"""Finds a code whose standard deviation is ``exp(logvar)``, or ``logvar`` itself, while the divergence takes the former
for the variance."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from steadytrain.capture.looks.syntax_trees import dotted, last_name, scopes, statements, walk

LOG_VARIANCE = re.compile(r"(?i)(.*_)?(z_?)?(log_?var\w*|lv|log_?sigma_?(2|sq\w*)|log_?variance)")
SPREAD = re.compile(r"(?i)(.*_)?(stds?|stdev|stddev|std_?dev|sigmas?|scale|standard_deviation)(_.*)?")
MEAN = re.compile(r"(?i)(.*_)?(mus?|means?|loc)(_.*)?")
NORMAL = ("Normal",)
NOISE = ("randn_like", "randn", "normal", "normal_")


def squared_spreads(tree: ast.Module) -> Iterator[int]:
    """The line where the deviation is made."""
    if not any(_takes_variance(node) for node in walk(tree)):
        return
    for scope in scopes(tree):
        nodes = list(statements(scope))
        text = ast.unparse(scope)
        spreads: dict[str, int] = {}
        for node in nodes:
            if isinstance(node, ast.Assign) and _is_wrong(node.value):
                spreads |= {last_name(one): node.lineno for one in node.targets if SPREAD.fullmatch(last_name(one))}
        if "sqrt" in text or not any(one in text for one in (*NOISE, *NORMAL)):
            continue
        used = {last_name(one) for node in nodes for one in _factors(node)}
        yield from (line for name, line in spreads.items() if name in used)
        for node in nodes:
            yield from (one.lineno for one in _factors(node) if _is_wrong(one))


def _factors(node: ast.AST) -> Iterator[ast.expr]:
    """What noise is multiplied by where it is added to a mean, and the deviation of a ``Normal``."""
    if isinstance(node, ast.Call) and last_name(node.func) in NORMAL and len(node.args) > 1:
        yield node.args[1]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        for mean, product in ((node.left, node.right), (node.right, node.left)):
            if MEAN.fullmatch(last_name(mean)):
                if isinstance(product, ast.BinOp) and isinstance(product.op, ast.Mult):
                    yield from (product.left, product.right)
                elif isinstance(product, ast.Call) and last_name(product.func) in ("mul", "mul_"):
                    yield from (product.func.value, *product.args)  # type: ignore[attr-defined]
    if isinstance(node, ast.Call) and last_name(node.func) in ("add", "add_") and len(node.args) == 1:
        product = node.func.value if isinstance(node.func, ast.Attribute) else node
        name = last_name(product.func) if isinstance(product, ast.Call) else ""
        if MEAN.fullmatch(last_name(node.args[0])) and name in ("mul", "mul_"):
            yield from (product.func.value, *product.args)  # type: ignore[attr-defined]


def _is_wrong(value: ast.expr) -> bool:
    """``logvar.exp()``, ``torch.exp(logvar)`` and ``logvar``."""
    return LOG_VARIANCE.fullmatch(_exponent(value) or last_name(value)) is not None


def _exponent(value: ast.expr) -> str:
    if not isinstance(value, ast.Call) or last_name(value.func) not in ("exp", "exp_"):
        return ""
    if value.args:
        return last_name(value.args[0])
    held = value.func.value if isinstance(value.func, ast.Attribute) else value
    return "" if dotted(held) in ("torch", "math") else last_name(held)


def _takes_variance(node: ast.AST) -> bool:
    """``1 + logvar - mu ** 2 - logvar.exp()``, with either sign."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, (ast.Add, ast.Sub)):
        return False
    terms = list(_terms(node, 1))
    ones = [sign for sign, one in terms if isinstance(one, ast.Constant) and one.value == 1]
    logs = {last_name(one): sign for sign, one in terms if LOG_VARIANCE.fullmatch(last_name(one))}
    powers = {_exponent(one): sign for sign, one in terms if _exponent(one)}
    return bool(ones) and any(ones[0] == sign and powers.get(name) == -sign for name, sign in logs.items())


def _terms(node: ast.expr, sign: int) -> Iterator[tuple[int, ast.expr]]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
        yield from _terms(node.left, sign)
        yield from _terms(node.right, sign if isinstance(node.op, ast.Add) else -sign)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield from _terms(node.operand, -sign)
    else:
        yield sign, node
