"""Finds a derivative that is part of the loss and carries no graph: ``torch.autograd.grad`` without ``create_graph``.

A gradient penalty, or a differential equation, of such a derivative is a constant for the backward. Not meant is a
derivative that moves an input of a network, as of an adversarial example, or that weighs another term of the loss.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from steadytrain.capture.looks.derivative_calls import is_derivative
from steadytrain.capture.looks.syntax_trees import Scope, dotted, last_name, scopes, statements, walk

PASSES_ON = re.compile(
    r"norm|vector_norm|pow|square|mean|sum|sqrt|abs|view|reshape|flatten|clamp|clamp_min|relu|squeeze|unsqueeze|stack|cat"
    r"|concat|zip|mul|add|sub|div|mse_loss|l1_loss|smooth_l1_loss|huber_loss|\w*criterion|\w*loss_fn|mse|exp|log|tanh"
    r"|transpose|permute|t|matmul|dot|einsum|hypot|to|max|min"
)
"""Calls that give what depends on their argument, and are no network."""

FUNCTIONS_MAX = 256
POSITIONAL_MAX = 4
"""Arguments of ``torch.autograd.grad`` before ``create_graph``."""


@dataclass
class _Values:
    """Variables at a place of a scope: ``constant`` depend on a derivative without a graph, made in that line; ``live``
    hold another result of a call."""

    constant: dict[str, int] = field(default_factory=dict)
    live: set[str] = field(default_factory=set)


def constant_penalties(tree: ast.Module) -> Iterator[int]:
    """The line of the derivative."""
    functions = list(scopes(tree))[:FUNCTIONS_MAX]
    own = any(not isinstance(scope, ast.Module) and scope.name == "grad" for scope in functions)
    made: dict[str, int | None] = {"grad": None} if own else {}  # the script's own function of that name
    for _ in range(2):  # a function may be defined after the one that calls it
        for scope in functions:
            line = None if isinstance(scope, ast.Module) else next(_in_results(scope, made), None)
            if line is not None and not isinstance(scope, ast.Module):
                made[scope.name] = line
    told = set()
    for scope in functions:
        for line in _in_backwards(scope, made):
            if line not in told:
                told.add(line)
                yield line


def _in_results(scope: Scope, made: Mapping[str, int | None]) -> Iterator[int]:
    """The derivative on which the result of a function depends."""
    for node, values in _followed(scope, made):
        line = _line_in(node.value, values, made) if isinstance(node, ast.Return) and node.value is not None else None
        if line is not None:
            yield line


def _in_backwards(scope: Scope, made: Mapping[str, int | None]) -> Iterator[int]:
    """The derivative on which a loss depends whose backward runs in the scope."""
    for node, values in _followed(scope, made):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "backward":
            roots = [node.func.value, *node.args]
            yield from (line for one in roots if (line := _line_in(one, values, made)) is not None)


def _followed(scope: Scope, made: Mapping[str, int | None]) -> Iterator[tuple[ast.AST, _Values]]:
    """The nodes of a scope, each with the variables before it. What was made before a loop is data of the loop."""
    values = _Values()
    within: set[int] = set()
    for node in statements(scope):
        if isinstance(node, (ast.For, ast.While)) and id(node) not in within:
            within |= {id(one) for one in walk(node)}
            values.constant.clear()
        yield node, values
        if isinstance(node, ast.Assign):
            line = _line_in(node.value, values, made)
            names = {one.id for target in node.targets for one in walk(target) if isinstance(one, ast.Name)}
            for name in names:
                values.constant.pop(name, None)
                values.live.discard(name)
                if line is not None:
                    values.constant[name] = line
                elif any(isinstance(one, ast.Call) for one in walk(node.value)):
                    values.live.add(name)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            line = _line_in(node.value, values, made)
            if line is not None:
                values.constant.setdefault(node.target.id, line)


def _line_in(value: ast.AST, values: _Values, made: Mapping[str, int | None]) -> int | None:
    """The line of a derivative without a graph that ``value`` depends on."""
    if isinstance(value, ast.Call):
        name = last_name(value.func)
        of_script = not isinstance(value.func, ast.Attribute) or dotted(value.func.value) == "self"
        if name in made and of_script:
            return made[name]
        if is_derivative(value):
            return None if _keeps_graph(value) else value.lineno
        if not PASSES_ON.fullmatch(name):
            return None
    if isinstance(value, ast.Name):
        return values.constant.get(value.id)
    if isinstance(value, (ast.Compare, ast.Lambda, ast.JoinedStr)) or _is_weighed(value, values):
        return None
    found = (_line_in(child, values, made) for child in ast.iter_child_nodes(value))
    return next((line for line in found if line is not None), None)


def _is_weighed(value: ast.AST, values: _Values) -> bool:
    """A product with a live variable: the derivative is the weight of a term."""
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Mult):
        return False
    return any(isinstance(side, ast.Name) and side.id in values.live for side in (value.left, value.right))


def _keeps_graph(call: ast.Call) -> bool:
    """Whether the call may make a graph: any ``create_graph`` but False, or arguments that are not seen here."""
    named = {one.arg: one.value for one in call.keywords}
    if None in named or len(call.args) > POSITIONAL_MAX:
        return True
    given = named.get("create_graph")
    return given is not None and not (isinstance(given, ast.Constant) and given.value is False)
