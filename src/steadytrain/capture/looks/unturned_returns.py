"""Finds discounted returns that are summed up from the last step backwards and never put back in time order.

``for r in reversed(rewards): total = r + gamma * total; returns.append(total)`` gives the return of the last step
first. The list has to be turned round, or filled from the front (``insert(0, total)``), before it meets what was
collected forwards. A list that is turned twice is as wrong.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from steadytrain.capture.looks.syntax_trees import (
    Scope,
    body_of,
    dotted,
    last_name,
    names_read,
    scopes,
    statements,
    walk,
)

GAINS = re.compile(
    r"(?i)(.*_)?(discounted(_\w+)?|returns?(_to_go)?|rewards?_to_go|rtgs?|adv\w*|gaes?|targets?|gs|rs|qs|q_?vals?\w*)(_.*)?"
)
"""Names of lists and functions that hold one return a step."""

FADES = re.compile(r"(?i).*(gamma|discount|lam(bda)?|decay).*")
KEPT_MIN, KEPT_MAX = 0.5, 1.0
"""A number that discounts."""

OTHERS = re.compile(
    r"(?i)(.*_)?(log_?p\w*|log_?prob\w*|saved\w*|act(ion)?s?|obs\w*|states?|values?|entrop\w*|mem\w*)(_.*)?"
)
"""What a return is paired with. Turned or collected in the same order, it fits."""

TURNS = frozenset({"reversed", "flip", "flipud", "flipped"})
SUMS = frozenset({"mean", "sum", "len", "max", "min", "std", "var", "print"})


@dataclass
class _Built:
    """A list that is filled in a loop from the end, ``in_front`` with each new value before the others."""

    name: str
    line: int
    in_front: bool


def unturned_returns(tree: ast.Module) -> Iterator[int]:
    """The lines at which such lists are filled."""
    if _turns_others(tree):
        return
    for scope in scopes(tree):
        for loop in statements(scope):
            if isinstance(loop, (ast.For, ast.AsyncFor)) and _is_backwards(loop, scope):
                for built in _built_in(loop):
                    if _named(built, scope) and _is_wrong(built, loop, scope, tree):
                        yield built.line


def _is_turned(node: ast.AST) -> bool:
    """Whether ``node`` itself turns a sequence round: ``reversed(x)``, ``x[::-1]``, ``x.flip(0)``."""
    if isinstance(node, ast.Call):
        return last_name(node.func) in TURNS or (isinstance(node.func, ast.Attribute) and node.func.attr == "reverse")
    return isinstance(node, ast.Subscript) and any(_is_backward_slice(one) for one in walk(node.slice))


def _is_backward_slice(node: ast.AST) -> bool:
    step = node.step if isinstance(node, ast.Slice) else None
    return isinstance(step, ast.UnaryOp) and isinstance(step.op, ast.USub)


def _turns_others(tree: ast.Module) -> bool:
    """Whether the file turns what a return is paired with: then all may be in one order."""
    return any(OTHERS.fullmatch(name) for node in walk(tree) if _is_turned(node) for name in _names_in(node))


def _names_in(node: ast.AST) -> set[str]:
    return {
        one.id if isinstance(one, ast.Name) else one.attr
        for one in walk(node)
        if isinstance(one, (ast.Name, ast.Attribute))
    }


def _is_backwards(loop: ast.For | ast.AsyncFor, scope: Scope) -> bool:
    if any(_is_turned(one) or _counts_down(one) for one in (loop.iter, *walk(loop.iter))):
        return True
    names = {dotted(loop.iter)} - {""}
    return any(_turns(node, names) for node in statements(scope) if getattr(node, "lineno", 0) < loop.lineno)


def _counts_down(node: ast.AST) -> bool:
    """``range(n - 1, -1, -1)``."""
    if not (isinstance(node, ast.Call) and last_name(node.func) in ("range", "arange") and len(node.args) == 3):
        return False
    step = node.args[2]
    return isinstance(step, ast.UnaryOp) and isinstance(step.op, ast.USub)


def _turns(node: ast.AST, names: set[str]) -> bool:
    """Whether a statement turns one of ``names`` in place, or gives it a turned value."""
    if isinstance(node, ast.Assign):
        into = {dotted(one) for one in node.targets} & names
        return bool(into) and any(_is_turned(one) for one in walk(node.value))
    in_place = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "reverse"
    return in_place and dotted(node.func.value) in names  # type: ignore[attr-defined]


def _built_in(loop: ast.For | ast.AsyncFor) -> Iterator[_Built]:
    """The lists that take a sum which fades, unless the loop also collects what it is paired with."""
    fading = {name for node in body_of(loop) for name in _fades(node)}
    calls = [one for one in body_of(loop) if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute)]
    calls = [one for one in calls if isinstance(one.func, ast.Attribute) and one.func.attr in ("append", "insert")]
    if any(OTHERS.fullmatch(last_name(one.func.value)) for one in calls if isinstance(one.func, ast.Attribute)):
        return
    for call in calls:
        func = call.func
        assert isinstance(func, ast.Attribute)
        in_front = func.attr == "insert"
        at_front = len(call.args) == 2 and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0
        if (in_front and not at_front) or not call.args or not dotted(func.value):
            continue
        if names_read(call.args[-1]) & fading:
            yield _Built(dotted(func.value), call.lineno, in_front)


def _fades(node: ast.AST) -> Iterator[str]:
    """The variable of ``total = reward + gamma * total``."""
    if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
        return
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    for target in targets:
        name = target.id if isinstance(target, ast.Name) else ""
        sums = isinstance(node.value, ast.BinOp) and isinstance(node.value.op, ast.Add)
        if name and sums and any(_discounts(one, name) for one in walk(node.value)):
            yield name


def _discounts(node: ast.AST, name: str) -> bool:
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and name in names_read(node)):
        return False
    numbers = (one.value for one in walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, float))
    return any(FADES.fullmatch(one) for one in _names_in(node)) or any(KEPT_MIN < one < KEPT_MAX for one in numbers)


def _named(built: _Built, scope: Scope) -> bool:
    function = "" if isinstance(scope, ast.Module) else scope.name
    into = {name for node in statements(scope) if isinstance(node, ast.Assign) for name in _taken(node, built.name)}
    return any(GAINS.fullmatch(name.rpartition(".")[2]) for name in (built.name, function, *into))


def _taken(node: ast.Assign, name: str) -> set[str]:
    return {dotted(one) for one in node.targets} - {""} if name in map(dotted, _expressions(node.value)) else set()


def _expressions(node: ast.AST) -> list[ast.expr]:
    return [one for one in (node, *walk(node)) if isinstance(one, ast.expr)]


def _is_wrong(built: _Built, loop: ast.For | ast.AsyncFor, scope: Scope, tree: ast.Module) -> bool:
    """Whether the list ends in the order of the end: turned neither here nor by those who get it, or twice."""
    after = [node for node in statements(scope) if getattr(node, "lineno", 0) > (loop.end_lineno or loop.lineno)]
    names = _aliases(built.name, after)
    turned = any(_turns_any(node, names) for node in after)
    if built.in_front:
        return turned and not _elsewhere(scope, tree)
    if turned or all(_sums_up(node, built.name) for node in after if built.name in _read(node)):
        return False
    return isinstance(scope, ast.Module) or not _elsewhere(scope, tree)


def _aliases(name: str, nodes: list[ast.AST]) -> set[str]:
    """``name``, and what is made of it."""
    names = {name}
    for node in nodes:
        if isinstance(node, ast.Assign) and names & set(map(dotted, _expressions(node.value))):
            names |= {dotted(one) for one in node.targets} - {""}
    return names


def _turns_any(node: ast.AST, names: set[str]) -> bool:
    """Whether ``node`` turns one of ``names``, or something made of it."""
    return _is_turned(node) and bool(names & set(map(dotted, _expressions(node))))


def _read(node: ast.AST) -> set[str]:
    return set(map(dotted, _expressions(node))) if isinstance(node, ast.stmt) else set()


def _sums_up(node: ast.AST, name: str) -> bool:
    """Whether a statement only takes a mean, a sum or the length of the list, so that no order matters."""
    calls = [one for one in walk(node) if isinstance(one, ast.Call) and last_name(one.func) in SUMS]
    inside = sum(name == dotted(each) for one in calls for each in (*one.args, *_owner(one)))
    whole = sum(name == dotted(each) for each in _expressions(node))
    return whole > 0 and inside >= whole


def _owner(call: ast.Call) -> tuple[ast.expr, ...]:
    """``x`` of ``x.mean()``."""
    return (call.func.value,) if isinstance(call.func, ast.Attribute) else ()


def _elsewhere(scope: Scope, tree: ast.Module) -> bool:
    """Whether a caller of the function in the same file turns what it gets."""
    if isinstance(scope, ast.Module):
        return False
    for other in scopes(tree):
        nodes = statements(other)
        got: set[str] = set()
        for node in nodes:
            called = [
                one for one in (node, *walk(node)) if isinstance(one, ast.Call) and last_name(one.func) == scope.name
            ]
            if not called:
                continue
            if any(
                _is_turned(one) and any(each is call for each in walk(one) for call in called) for one in walk(node)
            ):
                return True
            if _is_turned(node) and node not in called:
                return True
            if isinstance(node, ast.Assign):
                got |= {dotted(one) for target in node.targets for one in _expressions(target)} - {""}
        if got and any(_turns_any(node, _aliases_of(got, nodes)) for node in nodes):
            return True
    return False


def _aliases_of(names: set[str], nodes: tuple[ast.AST, ...]) -> set[str]:
    return set().union(*(_aliases(name, list(nodes)) for name in names))
