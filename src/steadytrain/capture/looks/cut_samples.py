"""Finds a draw without a gradient where the reparameterised one is meant: ``q.sample()`` for ``q.rsample()``.

Three places say what is meant: a function that is named for the reparameterisation; a code that a decoder is given, of
a distribution whose parameters this function computes; an action that a critic is given for the loss of an actor, or
whose logarithm of the probability is returned where the file computes ``alpha * log_prob - q``. Scores that are
multiplied by a reward, steps of an environment and what stands under ``no_grad`` are left alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from steadytrain.capture.looks.syntax_trees import (
    Scope,
    last_name,
    names_read,
    scopes,
    statements,
    stops_graph,
    walk,
    with_graph,
)

CONTINUOUS = re.compile(r"(Log)?Normal|MultivariateNormal|LowRankMultivariateNormal|Laplace|SquashedNormal|TanhNormal")
WRAPS = ("Independent", "TransformedDistribution")
BY_NAME = re.compile(r"(?i)_?re?param\w*")
DECODER = re.compile(r"(?i)(.*_)?dec(oder|ode)?\w*")
CRITIC = re.compile(r"(?i)(.*_)?(critic\w*|q\d?|qf\d?|q_?net\w*|q_?func\w*)")
COPY = re.compile(r"(?i)target|tgt|old|ref|ema")
ACTOR_LOSS = re.compile(r"(?i)(.*_)?(actor|policy|pi)_?loss\w*")
LOG_PROBABILITY = re.compile(r"(?i)(.*_)?log_?(p|pi|prob\w*)(_.*)?")
WEIGHT = re.compile(r"(?i)(.*_)?(alpha|temperature|ent_coef)\w*")
VALUE = re.compile(r"(?i)(.*_)?(min_?)?(q|qf|critic)\d?(_.*|value\w*|min\w*|pi)?")
NO_TRAINING = re.compile(r"(?i)detach|numpy|item|REINFORCE|advantage")


def cut_samples(tree: ast.Module) -> Iterator[int]:
    """The line of the draw."""
    soft = any(_is_soft_loss(node) for node in walk(tree))
    givers = {one.name for one in walk(tree) if isinstance(one, ast.FunctionDef) and _gives_distribution(one)}
    for scope in scopes(tree):
        if isinstance(scope, ast.Module) or not any(map(stops_graph, scope.decorator_list)):
            yield from _in_scope(scope, givers, soft=soft)


def _in_scope(scope: Scope, givers: set[str], *, soft: bool) -> Iterator[int]:
    nodes = list(with_graph(scope))
    made = {
        name
        for one in nodes
        for name, call in _assigned(one)
        if _is_distribution(call) or (isinstance(call, ast.Call) and last_name(call.func) in givers)
    }
    drawn: dict[str, tuple[str, int]] = {}
    for node in nodes:
        for name, value in _assigned(node):
            of = _drawn_of(value, made)
            drawn.pop(name, None)
            if of:
                drawn[name] = of, value.lineno
    text = ast.unparse(scope) if drawn or isinstance(scope, ast.FunctionDef) else ""
    if NO_TRAINING.search(text) or ".step(" in text.replace("optimizer.step(", ""):
        return
    if isinstance(scope, ast.FunctionDef) and BY_NAME.fullmatch(scope.name):
        returned = [one.value for one in nodes if isinstance(one, ast.Return) and one.value is not None]
        for value in returned:
            if _drawn_of(value, made):
                yield value.lineno
            yield from (drawn[name][1] for name in names_read(value) & set(drawn))
        return
    for name, (of, line) in drawn.items():
        given = [one for one in nodes if isinstance(one, ast.Call) and any(_reads(each, name) for each in one.args)]
        scored = [one for one in given if last_name(one.func) == "log_prob"]
        decoded = any(DECODER.fullmatch(last_name(one.func)) and not COPY.search(last_name(one.func)) for one in given)
        if (decoded and not scored) or (soft and scored and _is_soft(nodes, name, of)) or _is_judged(nodes, given):
            yield line


def _is_judged(nodes: list[ast.AST], given: list[ast.Call]) -> bool:
    """Whether a critic gets the action, and its value is in the loss of an actor that weighs no score."""
    judged = [
        one
        for one in given
        if CRITIC.fullmatch(last_name(one.func)) and not COPY.search(last_name(one.func)) and len(one.args) > 1
    ]
    made = [each for one in nodes for each in _assigned(one)]
    values = {name for name, value in made if any(one in judged for one in walk(value))}
    losses = [value for name, value in made if ACTOR_LOSS.fullmatch(name) and not _weighs_score(value)]
    return any(names_read(one) & values or any(each in judged for each in walk(one)) for one in losses)


def _is_soft(nodes: list[ast.AST], name: str, of: str) -> bool:
    """Whether the logarithm of the draw's probability, and what is made of the draw, are returned."""
    logs = {
        each
        for one in nodes
        for each, value in _assigned(one)
        if any(last_name(call.func) == "log_prob" for call in walk(value) if isinstance(call, ast.Call))
        and of in names_read(value)
    }
    made = {name}
    for one in nodes:
        for each, value in _assigned(one):
            if names_read(value) & made and each not in logs:
                made.add(each)
    returns = [names_read(one.value) for one in nodes if isinstance(one, ast.Return) and one.value is not None]
    return any(each & logs and each & made for each in returns)


def _is_soft_loss(node: ast.AST) -> bool:
    """``alpha * log_prob - q``."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Sub) or not isinstance(node.left, ast.BinOp):
        return False
    factors = {last_name(one) for one in walk(node.left) if isinstance(one, (ast.Name, ast.Attribute))}
    value = last_name(node.right.func) if isinstance(node.right, ast.Call) else last_name(node.right)
    return (
        isinstance(node.left.op, ast.Mult)
        and any(WEIGHT.fullmatch(one) for one in factors)
        and any(LOG_PROBABILITY.fullmatch(one) for one in factors)
        and (VALUE.fullmatch(value) is not None or value in ("min", "minimum"))
    )


def _weighs_score(value: ast.expr) -> bool:
    """Whether a logarithm of a probability is multiplied by anything but the weight of an entropy."""
    for node in walk(value):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            words = {last_name(one) for one in walk(node) if isinstance(one, (ast.Name, ast.Attribute))}
            if any(LOG_PROBABILITY.fullmatch(one) for one in words) and not any(WEIGHT.fullmatch(one) for one in words):
                return True
    return False


def _is_distribution(value: ast.expr) -> bool:
    """A continuous distribution with parameters that are variables."""
    if not isinstance(value, ast.Call) or not value.args:
        return False
    name = last_name(value.func)
    if name in WRAPS:
        return _is_distribution(value.args[0])
    given = [one for one in value.args if not isinstance(one, ast.Constant)]
    words = [last_name(one.func) for one in given if isinstance(one, ast.Call)]
    return CONTINUOUS.fullmatch(name) is not None and bool(given) and not any("zeros" in one for one in words)


def _gives_distribution(function: ast.FunctionDef) -> bool:
    """Whether all that ``function`` returns are such distributions."""
    given = [one.value for one in statements(function) if isinstance(one, ast.Return)]
    return bool(given) and all(one is not None and _is_distribution(one) for one in given)


def _drawn_of(value: ast.expr, made: set[str]) -> str:
    """The distribution that ``value`` is a draw of, "" of all else."""
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute) or value.func.attr != "sample":
        return ""
    held = value.func.value
    if value.args or value.keywords:
        return ""
    return held.id if isinstance(held, ast.Name) and held.id in made else "()" if _is_distribution(held) else ""


def _reads(value: ast.expr, name: str) -> bool:
    return name in names_read(value)


def _assigned(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from ((one.id, node.value) for one in walk(target) if isinstance(one, ast.Name))
    elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        yield node.target.id, ast.BinOp(ast.Name(node.target.id, ast.Load()), node.op, node.value)
