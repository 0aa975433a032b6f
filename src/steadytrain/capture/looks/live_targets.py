"""Finds targets that carry a gradient: a bootstrapped value, an advantage, or a projection that a predictor is compared
with, that is not detached."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from steadytrain.capture.looks.bootstrapped_ends import is_discounted_next
from steadytrain.capture.looks.syntax_trees import (
    Scope,
    last_name,
    names_read,
    names_stored,
    scopes,
    stops_graph,
    walk,
    with_graph,
)

LOSSES = re.compile(r"(?i)mse_loss|smooth_l1_loss|huber_loss|l1_loss|\w*criterion|\w*loss_fn|mse|huber|loss_function")
LOG_PROBABILITY = re.compile(r"(?i)(.*_)?(log_?p\w*|logp\w*|ratio\w*|surr\w*)")
ADVANTAGE = re.compile(r"(?i)(.*_)?(adv\w*|delta|td_error|td)")
ENDS_GRAPH = re.compile(
    r"detach|detach_|item|numpy|tolist|no_grad|float|tensor|as_tensor|stop_gradient|data|argmax|argmin|multinomial"
    r"|(sample|draw|pick|choose|select)(_\w+)?|(\w+_)?rewards?"
)
COPY = re.compile(r"(?i)target|tgt|ema|frozen|old|ref|teacher|slow|lag|momentum")
NONE = 0, ""
NO_GRAPH = re.compile(r"no_grad|inference_mode|enable_grad")


def live_targets(tree: ast.Module) -> Iterator[int]:
    """The line where the target, or the advantage, is computed."""
    yield from _crossed_projections(tree)
    for scope in scopes(tree):
        if _is_without_graph(scope):
            continue
        live = _live(scope)
        if not live:
            continue
        for node in with_graph(scope):
            if isinstance(node, ast.Call) and LOSSES.fullmatch(last_name(node.func)) and len(node.args) >= 2:
                target = last_name(node.args[1])
                if live.get(target, NONE)[1] == "target" and target not in names_read(node.args[0]):
                    yield live[target][0]
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
                for one, other in ((node.left, node.right), (node.right, node.left)):
                    weight = other.id if isinstance(other, ast.Name) else ""
                    if live.get(weight, NONE)[1] == "advantage" and LOG_PROBABILITY.fullmatch(last_name(_core(one))):
                        yield live[weight][0]


def _crossed_projections(tree: ast.Module) -> Iterator[int]:
    """``f(p1, z2) + f(p2, z1)``, where a predictor made each p of its z, and nothing is detached."""
    if not re.search(r"(?i)predictor", ast.unparse(tree)) or any(map(_stops_gradient, walk(tree))):
        return
    closed = {one.name for one in walk(tree) if isinstance(one, ast.FunctionDef) and "detach" in ast.unparse(one)}
    for scope in scopes(tree):
        calls: dict[tuple[str, str, str], ast.Call] = {}
        nodes = list(with_graph(scope))
        stopped = {name for one in nodes for name in _detached(one)} | set(_of_no_graph(scope))
        for node in nodes:
            names = [last_name(one) for one in node.args[:2]] if isinstance(node, ast.Call) else []
            if (
                not isinstance(node, ast.Call)
                or len(names) != 2
                or last_name(node.func) in closed
                or set(names) & stopped
            ):
                continue
            one, other = (re.fullmatch(r"(.*?)_?([12ab])", name) for name in names)
            if one and other and one[1] != other[1] and one[2] != other[2]:
                twin = calls.get((last_name(node.func), one[1], other[1]))
                if twin is not None and [last_name(each) for each in twin.args[:2]] != names:
                    yield twin.lineno
                calls[last_name(node.func), one[1], other[1]] = node


def _stops_gradient(node: ast.AST) -> bool:
    """A result, or a variable, that is detached, but for a number that is shown."""
    given = node.value if isinstance(node, (ast.Return, ast.Assign)) else None
    text = ast.unparse(given) if given is not None else ""
    return ".detach()" in text and ".item()" not in text


def _detached(node: ast.AST) -> Iterator[str]:
    """Variables that are detached, in place or by an assignment."""
    if isinstance(node, ast.Call) and last_name(node.func) in ("detach_", "requires_grad_"):
        yield from names_read(node.func)
    if isinstance(node, ast.Assign) and "detach" in ast.unparse(node.value):
        yield from (one.id for target in node.targets for one in walk(target) if isinstance(one, ast.Name))


def _of_no_graph(scope: ast.AST) -> Iterator[str]:
    """Variables that a block without a graph assigns, or that a copy of the network computes."""
    for node in walk(scope):
        if isinstance(node, ast.With) and any(stops_graph(one.context_expr) for one in node.items):
            yield from (name for one in node.body for name in names_stored(one))
        if isinstance(node, ast.Assign) and any(COPY.search(name) for name in _called(node.value)):
            yield from names_stored(node)


def _called(value: ast.AST) -> Iterator[str]:
    return (last_name(one.func) for one in walk(value) if isinstance(one, ast.Call))


def _core(value: ast.expr) -> ast.expr:
    while isinstance(value, (ast.UnaryOp, ast.Call)):
        if isinstance(value, ast.UnaryOp):
            value = value.operand
        elif isinstance(value.func, ast.Attribute) and not isinstance(value.func.value, ast.Call):
            value = value.func.value if value.func.attr in ("sum", "mean", "squeeze", "exp") else value.func
        else:
            return value.func
    return value


def _live(scope: Scope) -> dict[str, tuple[int, str]]:
    """Variables of a scope that are targets or advantages and carry the gradient of a network."""
    carries: set[str] = set()
    live: dict[str, tuple[int, str]] = {}
    for node in with_graph(scope):
        if not isinstance(node, ast.Assign):
            continue
        names = [one.id for target in node.targets for one in walk(target) if isinstance(one, ast.Name)]
        graph = _carries(node.value, carries)
        for name in names:
            (carries.add if graph else carries.discard)(name)
            live.pop(name, None)
            if graph and _is_bootstrap(node.value):
                live[name] = node.lineno, "target"
            elif graph and isinstance(node.value, ast.BinOp) and ADVANTAGE.fullmatch(name):
                live[name] = node.lineno, "advantage"
    return live


def _carries(value: ast.AST, carries: set[str]) -> bool:
    """Whether ``value`` has a gradient: it calls a network, or reads what does."""
    if isinstance(value, ast.Call):
        name = last_name(value.func)
        if ENDS_GRAPH.fullmatch(name):
            return False
        if _is_network(name) and value.args:
            return True
    if isinstance(value, ast.Attribute) and value.attr == "data":
        return False
    if isinstance(value, ast.Name):
        return value.id in carries
    if isinstance(value, (ast.Compare, ast.Lambda)):
        return False
    return any(_carries(child, carries) for child in ast.iter_child_nodes(value))


def _is_network(name: str) -> bool:
    """Whether a call of ``name`` runs a network that is trained, and no copy of it."""
    words = re.fullmatch(
        r"(?i)(.*_)?(q|q1|q2|qnet|q_net|q_network|critic|value|v|vf|net|model|policy|agent|value_net|value_head|critic\w*"
        r"|qf\d?|online\w*|actor_critic|ac)",
        name,
    )
    return words is not None and COPY.search(name) is None


def _is_bootstrap(value: ast.expr) -> bool:
    """``reward + gamma * next_value``."""
    for node in walk(value):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and is_discounted_next(node):
            return True
    return False


def _is_without_graph(scope: Scope) -> bool:
    decorators = [] if isinstance(scope, ast.Module) else scope.decorator_list
    return any(NO_GRAPH.fullmatch(last_name(one.func if isinstance(one, ast.Call) else one)) for one in decorators)
