"""Finds an environment that returns its own state, which it goes on changing, to a script that keeps what it gets.

The mistake has three parts: a class with ``reset`` and ``step`` changes an attribute in place (``self.state[0] += 1``)
and returns it as it is; the script puts what it gets into a list or a buffer of objects; and nothing makes a copy.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from steadytrain.capture.looks.syntax_trees import (
    Scope,
    argument_names,
    assignments,
    dotted,
    last_name,
    names_read,
    names_stored,
    scopes,
    statements,
    walk,
)

COPIES = re.compile(
    r"copy|deepcopy|clone|array|tensor|as_tensor|astype|tolist|list|tuple|float32|stack|concatenate|cat"
)
IN_PLACE = re.compile(r"(?!_)\w+[a-z]_|fill|sort|put|itemset")
SAME_MEMORY = frozenset({"from_numpy", "as_tensor", "asarray", "as_strided"})
NUMBERS = frozenset({"item", "float", "int", "len", "sum", "mean", "round", "max", "min"})
ROUNDS = 2
"""Assignments that are followed from what an environment returned."""

KEEPS = frozenset({"append", "appendleft", "push", "add", "store", "remember", "put", "insert", "extend"})


def shared_states(tree: ast.Module) -> Iterator[int]:
    """The line that returns the state."""
    if not _keeps_objects(tree):
        return
    yield from _kept_at_once(tree)
    for holder in (one for one in walk(tree) if isinstance(one, ast.ClassDef)):
        methods = {one.name: one for one in holder.body if isinstance(one, ast.FunctionDef)}
        if not {"reset", "step"} <= methods.keys():
            continue
        changed = {name for one in methods.values() for name in _changed(one)}
        for line, name in _returned(methods["step"], methods):
            if name in changed and not _is_copied(tree):
                yield line
                return


def _changed(method: ast.FunctionDef) -> Iterator[str]:
    """Attributes that a method changes in place, also by another name: ``s = self.state; s[0] += 1``."""
    other_names = {
        dotted(target): dotted(value)
        for target, value in assignments(statements(method))
        if dotted(value).startswith("self.") and "." not in dotted(target)
    }
    for one in statements(method):
        targets = one.targets if isinstance(one, ast.Assign) else [one.target] if isinstance(one, ast.AugAssign) else []
        for target in targets:
            holder = target.value if isinstance(target, ast.Subscript) else target
            in_place = isinstance(target, ast.Subscript) or isinstance(one, ast.AugAssign)
            if in_place and dotted(holder).startswith("self."):
                yield dotted(holder)
            elif isinstance(target, ast.Subscript) and dotted(holder) in other_names:
                yield other_names[dotted(holder)]
    yield from _written(method)


def _written(method: ast.FunctionDef) -> Iterator[str]:
    """Attributes whose values a method writes by a function: ``self.u.add_(1)``, ``np.clip(..., out=self.u)``, also in
    a part of them."""
    for one in statements(method):
        if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and IN_PLACE.fullmatch(one.func.attr):
            yield dotted(one.func.value.value if isinstance(one.func.value, ast.Subscript) else one.func.value)
        if isinstance(one, ast.Call):
            yield from (dotted(each.value) for each in one.keywords if each.arg == "out")


def _kept_at_once(tree: ast.Module) -> Iterator[int]:
    """The line that returns, or yields, an array that the same object goes on changing, where the script keeps what
    that method returns in a list: ``frames.append(rod.advance())``."""
    calls = [one for one in walk(tree) if isinstance(one, ast.Call) and last_name(one.func) in KEEPS and one.args]
    inner = [one.args[0] for one in calls if isinstance(one.args[0], ast.Call)]
    asked = {one.func.attr for one in inner if isinstance(one.func, ast.Attribute)}
    for holder in (one for one in walk(tree) if isinstance(one, ast.ClassDef)):
        methods = [one for one in holder.body if isinstance(one, ast.FunctionDef)]
        changed = {name for one in methods for name in (*_written(one), *_put_in(one))}
        for method in methods:
            if method.name in asked - {"step", "reset"} and not method.decorator_list:
                for one in statements(method):
                    name = dotted(one.value) if isinstance(one, (ast.Return, ast.Yield)) and one.value else ""
                    if name in changed and name.startswith("self."):
                        yield one.lineno  # type: ignore[attr-defined]


def _put_in(method: ast.FunctionDef) -> Iterator[str]:
    """Attributes of which a method assigns a part: ``self.spins[i, j] *= -1``."""
    for one in statements(method):
        targets = one.targets if isinstance(one, ast.Assign) else [one.target] if isinstance(one, ast.AugAssign) else []
        yield from (dotted(target.value) for target in targets if isinstance(target, ast.Subscript))


def _returned(method: ast.FunctionDef, methods: dict[str, ast.FunctionDef]) -> Iterator[tuple[int, str]]:
    """Attributes that a method returns as they are, itself or by another method without arguments."""
    for one in statements(method):
        if isinstance(one, ast.Return) and one.value is not None:
            for part in one.value.elts if isinstance(one.value, ast.Tuple) else [one.value]:
                part = part.orelse if isinstance(part, ast.IfExp) else part
                if isinstance(part, ast.Call) and last_name(part.func) in SAME_MEMORY and part.args:
                    part = part.args[0]
                if isinstance(part, ast.Call) and not part.args and dotted(part.func).startswith("self."):
                    other = methods.get(last_name(part.func))
                    yield from _returned(other, {}) if other is not None and methods else ()
                elif dotted(part).startswith("self."):
                    yield one.lineno, dotted(part)


def _keeps_objects(tree: ast.Module) -> bool:
    """Whether what an environment returned is kept in a list or a deque that rows are drawn from, or that becomes the
    batch: by its variable, or in a method that is given it."""
    given = _given_by_environments(tree)
    for scope in scopes(tree):
        names = given | argument_names(scope) | _rest(scope)
        for one in statements(scope):
            if isinstance(one, ast.Call) and last_name(one.func) in KEEPS and _reads(one, names):
                return True
    return False


def _given_by_environments(tree: ast.Module) -> set[str]:
    """Variables that hold what ``step`` or ``reset`` returned, and those that were made of them."""
    pairs = [pair for scope in scopes(tree) for pair in assignments(statements(scope))]
    given: set[str] = set()
    for _ in range(ROUNDS):
        for target, value in pairs:
            if _asks(value) or (names_read(value) & given and not _is_number(value)):
                given |= names_stored(target)
    return given


def _rest(scope: Scope) -> set[str]:
    rest = scope.args.vararg if not isinstance(scope, ast.Module) else None
    return {rest.arg} if rest is not None else set()


def _reads(call: ast.Call, names: set[str]) -> bool:
    """Whether a call is given one of these objects, and not only a number of it."""
    parts = [part for one in call.args for part in (one.elts if isinstance(one, (ast.Tuple, ast.List)) else [one])]
    return any(_asks(part) or (names_read(part) & names and not _is_number(part)) for part in parts)


def _is_number(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and last_name(value.func) in NUMBERS


def _is_copied(tree: ast.Module) -> bool:
    """Whether what is kept is copied on its way: in the call that keeps it, or where the environment is asked."""
    asked = {
        name
        for one in walk(tree)
        if isinstance(one, ast.Assign) and isinstance(one.value, ast.Call)
        if last_name(one.value.func) in ("step", "reset")
        for name in names_stored(_first(one.targets[0]))
    }
    for one in walk(tree):
        if isinstance(one, ast.Call) and last_name(one.func) == "send" and _asks(one):
            return True  # to another process
        if isinstance(one, ast.Call) and last_name(one.func) in KEEPS:
            given = [each for value in one.args for each in walk(value) if isinstance(each, ast.Call)]
            if any(COPIES.fullmatch(last_name(each.func)) for each in given):
                return True
        if isinstance(one, ast.Assign) and isinstance(one.value, ast.Call):
            inner = [each for each in walk(one.value) if isinstance(each, ast.Call)]
            copies = any(COPIES.fullmatch(last_name(each.func)) for each in inner)
            if copies and (_asks(one.value) or (names_read(one.value) & asked and not _is_batch(one.targets[0]))):
                return True
    return False


def _asks(node: ast.AST) -> bool:
    """Whether the environment is asked for its next state."""
    return any(isinstance(one, ast.Call) and last_name(one.func) in ("step", "reset") for one in walk(node))


def _first(target: ast.expr) -> ast.expr:
    """The observation of what a step returns: the first of several variables."""
    return target.elts[0] if isinstance(target, ast.Tuple) and target.elts else target


def _is_batch(target: ast.expr) -> bool:
    """Whether several variables are given, as those of a batch that is drawn and stacked."""
    return isinstance(target, ast.Tuple)
