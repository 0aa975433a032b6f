"""Finds a soft actor-critic whose temperature runs away: its target entropy, or its loss, has the wrong sign.

The temperature has to rise where the policy is surer than its target: the loss falls along ``log_alpha`` where
``log_prob`` lies above minus the target. So in the whole loss ``log_prob`` is subtracted, and the number of actions, of
which the target is minus as many, is added. What is computed otherwise is not judged.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from steadytrain.capture.looks.syntax_trees import assignments, dotted, last_name, names_called, number_of, walk

TARGET = re.compile(r"(?i)(_*target_?(ent(ropy)?|h)|ent(ropy)?_?target|h_?target)\d?")
TEMPERATURE = re.compile(r"(?i)_*(log_?)?(alpha|temp(erature)?|ent(ropy)?_?coef|tau)(_?t|_?param)?")
LOG_PROBABILITY = re.compile(
    r"(?i)(curr_|new_|next_|pi_|a_)?log_?(ps?|pis?|probs?|likelihoods?)\d?(_\w+)?|lps?\d?|logps?"
)
ENTROPY = re.compile(r"(?i)(\w+_)?ent(ropy)?|h")
COUNT = re.compile(r"(?i).*(dim|shape|size|act|n_a|num_a).*")
"""What a number of actions is called."""

CONTINUOUS = frozenset({"tanh", "Tanh", "Normal", "rsample", "MultivariateNormal", "TanhTransform"})
DISCRETE = frozenset({"Categorical", "OneHotCategorical", "gumbel_softmax"})
KEEP_SIGN = frozenset(
    {"mean", "sum", "detach", "squeeze", "unsqueeze", "view", "reshape", "float", "exp", "item", "abs"}
)
ONES = frozenset({"prod", "len", "int", "float", "tensor", "abs", "array", "as_tensor", "item", "numel"})


def runaway_temperatures(tree: ast.Module) -> Iterator[int]:
    """The line of the target, or of the loss of the temperature."""
    called = names_called(tree)
    if not called & CONTINUOUS or called & DISCRETE:
        return
    assigned = list(assignments(walk(tree)))
    targets = [(target, value) for target, value in assigned if TARGET.fullmatch(last_name(target))]
    targets += list(_handed_on(tree))
    known = {dotted(target): value for target, value in assigned if dotted(target)}
    signs = {sign for _, value in targets if (sign := _sign_of_count(value, known)) is not None}
    if len(signs) != 1:
        return
    of_target = signs.pop()
    for target, value in assigned:
        terms = _terms_of(value, known)
        if terms is None or not _is_loss(target):
            continue
        of_log, of_count = terms["log"], terms["target"] * of_target
        if of_log > 0:
            yield value.lineno
            return
        if of_count < 0:
            yield next(one.lineno for _, one in targets)
            return


def _handed_on(tree: ast.Module) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Targets that are arguments of calls, defaults of functions, and fields of classes."""
    for node in walk(tree):
        if isinstance(node, ast.Call):
            yield from (
                (ast.Name(one.arg), one.value) for one in node.keywords if one.arg and TARGET.fullmatch(one.arg)
            )
        elif isinstance(node, ast.AnnAssign) and node.value is not None and TARGET.fullmatch(last_name(node.target)):
            yield node.target, node.value
        elif isinstance(node, ast.arguments):
            given = [*zip(node.args[::-1], node.defaults[::-1], strict=False)]
            given += [(one, value) for one, value in zip(node.kwonlyargs, node.kw_defaults, strict=True) if value]
            yield from ((ast.Name(one.arg), value) for one, value in given if TARGET.fullmatch(one.arg))


def _is_loss(target: ast.expr) -> bool:
    return re.search(r"(?i)loss|objective|^l_", last_name(target)) is not None


def _sign_of_count(value: ast.expr, known: Mapping[str, ast.expr], depth: int = 0) -> int | None:
    """1 for a number of actions, -1 for minus one, None for all else."""
    if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub):
        sign = _sign_of_count(value.operand, known, depth)
        return -sign if sign is not None else None
    number = number_of(value)
    if number is not None:
        return 1 if number > 0 else -1 if number < 0 else None
    if isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Mult, ast.Div)):
        left, right = _sign_of_count(value.left, known, depth), _sign_of_count(value.right, known, depth)
        return left * right if left is not None and right is not None else None
    if isinstance(value, ast.Call) and last_name(value.func) in ONES:
        of = value.func.value if isinstance(value.func, ast.Attribute) and not value.args else None
        given = value.args[0] if value.args else of
        return _sign_of_count(given, known, depth) if given is not None else None
    if isinstance(value, (ast.Name, ast.Attribute, ast.Subscript)):
        held = value.value if isinstance(value, ast.Subscript) else value
        written = known.get(dotted(held))
        sign = _sign_of_count(written, known, depth + 1) if written is not None and depth < 4 else None
        return sign if sign is not None else 1 if COUNT.fullmatch(dotted(held)) else None
    return None


def _terms_of(value: ast.expr, known: Mapping[str, ast.expr]) -> dict[str, int] | None:
    """The signs of the log-probability and of the target in a loss of the temperature; None for another loss."""
    found: dict[str, set[int]] = {"log": set(), "target": set(), "temperature": set()}
    for kind, sign in _leaves(value, known, 1, following=True):
        found[kind].add(sign)
    if not found["temperature"] or any(len(found[kind]) != 1 for kind in ("log", "target")):
        return None
    return {kind: next(iter(found[kind])) for kind in ("log", "target")}


def _leaves(node: ast.expr, known: Mapping[str, ast.expr], sign: int, *, following: bool) -> Iterator[tuple[str, int]]:
    name = last_name(node) if isinstance(node, (ast.Name, ast.Attribute)) else ""
    if name:
        if TARGET.fullmatch(name):
            yield "target", sign
        elif TEMPERATURE.fullmatch(name):
            yield "temperature", sign
        elif LOG_PROBABILITY.fullmatch(name):
            yield "log", sign
        elif ENTROPY.fullmatch(name):
            yield "log", -sign
        elif following and isinstance(node, ast.Name) and name in known and not isinstance(known[name], ast.Name):
            yield from _leaves(known[name], known, sign, following=False)
    elif isinstance(node, ast.UnaryOp):
        yield from _leaves(node.operand, known, -sign if isinstance(node.op, ast.USub) else sign, following=following)
    elif isinstance(node, ast.BinOp):
        sides: Sequence[tuple[ast.expr, int]] = ((node.left, sign), (node.right, sign))
        if isinstance(node.op, ast.Sub):
            sides = ((node.left, sign), (node.right, -sign))
        elif isinstance(node.op, ast.Mult):
            left, right = _factor(node.left), _factor(node.right)
            sides = ((node.left, sign * right), (node.right, sign * left))
        elif not isinstance(node.op, (ast.Add, ast.Div)):
            return
        for side, signed in sides:
            yield from _leaves(side, known, signed, following=following)
    elif isinstance(node, ast.Call) and last_name(node.func) in KEEP_SIGN:
        given = node.args[0] if node.args and not _is_axis(node.args[0]) else None
        held = node.func.value if isinstance(node.func, ast.Attribute) and given is None else given
        if held is not None:
            yield from _leaves(held, known, sign, following=following)


def _is_axis(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) or (
        isinstance(value, ast.UnaryOp) and isinstance(value.operand, ast.Constant)
    )


def _factor(node: ast.expr) -> int:
    """The sign by which a factor multiplies the other one: a temperature is above zero, and so is the way along it."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_factor(node.operand)
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return -1 if node.value < 0 else 1
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return _factor(node.left) * _factor(node.right)
    return 1
