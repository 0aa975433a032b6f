"""Finds a recurrence that multiplies its state by more than 1 in every step, however its weights are trained.

``h = a * h + u`` in a loop of a module forgets nothing if ``a`` is the exponential of something positive, or 1 plus
something positive: the state grows exponentially along the sequence. Signs are followed through the assignments of a
method, the attributes of its class, and methods that only return a value.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from steadytrain.capture.looks.syntax_trees import body_of, dotted, given_values, last_name, statements, walk

POSITIVE = frozenset({"exp", "softplus", "sigmoid", "relu", "abs", "square", "ones", "ones_like", "arange", "rand"})
OF_ENDS = frozenset({"linspace", "logspace", "full", "new_full"})
"""Calls that are positive if their numbers are."""

SAME_SIGN = frozenset(
    {"unsqueeze", "squeeze", "view", "reshape", "expand", "expand_as", "clone", "float", "to", "detach"}
    | {"contiguous", "sum", "mean", "cumsum", "repeat", "tensor", "transpose", "permute", "unbind", "flatten"}
    | {"mul", "Parameter"}
)
GIVEN = frozenset({"h", "hx", "s", "c", "state", "hidden", "prev", "previous", "memory", "mem", "carry"})
"""Names of a state that a cell is given."""

DEPTH_MAX = 8


@dataclass(frozen=True)
class _Known:
    """What names hold in a method: its own assignments, those of ``self``, and methods by name."""

    names: Mapping[str, ast.expr]
    methods: Mapping[str, ast.expr]


def growing_states(tree: ast.Module) -> Iterator[int]:
    """The line of the update."""
    for kind in (one for one in walk(tree) if isinstance(one, ast.ClassDef) and _is_module(one)):
        methods = [one for one in kind.body if isinstance(one, ast.FunctionDef)]
        own = _assigned([node for one in methods for node in statements(one)], "self.")
        results = {one.name: value for one in methods if (value := _only_result(one)) is not None}
        for method in methods:
            known = _Known({**own, **_assigned(statements(method), "")}, results)
            given = {one.arg for one in method.args.args[2:]} & GIVEN  # after what it reads in this step
            parts = [body_of(one) for one in statements(method) if isinstance(one, (ast.For, ast.While))]
            for part in [*parts, method.body] if given else parts:
                updates = (one for one in part if isinstance(one, (ast.Assign, ast.Return)))
                grown = (one for one in updates if _grows(one, known, given))
                yield from (one.lineno for one in itertools.islice(grown, 1))


def _grows(update: ast.Assign | ast.Return, known: _Known, given: set[str]) -> bool:
    return any(_is_above_one(factor, known, 0) for factor in _factors_of_state(update, given))


def _is_module(kind: ast.ClassDef) -> bool:
    return any("Module" in last_name(base) or "Cell" in last_name(base) for base in kind.bases)


def _assigned(nodes: Sequence[ast.AST], prefix: str) -> dict[str, ast.expr]:
    """The values of variables (of attributes, for the prefix ``self.``) that are assigned once."""
    found: dict[str, list[ast.expr]] = {}
    for one in (each for each in nodes if isinstance(each, ast.Assign)):
        for target, value in given_values(one):
            name = dotted(target)
            if name and name.startswith(prefix):
                found.setdefault(name, []).append(value)
    return {name: values[0] for name, values in found.items() if len(values) == 1}


def _only_result(method: ast.FunctionDef) -> ast.expr | None:
    returned = [one.value for one in statements(method) if isinstance(one, ast.Return) and one.value is not None]
    return returned[0] if len(returned) == 1 else None


def _factors_of_state(node: ast.Assign | ast.Return, given: set[str]) -> list[ast.expr]:
    """What the state ``h`` is multiplied by in ``h = a * h + u``, or in what is returned for the ``given`` state ``h``.
    Empty where nothing is added: a state that is only multiplied is a product, and is left alone."""
    if not isinstance(node.value, ast.BinOp) or not isinstance(node.value.op, ast.Add):
        return []
    states = {dotted(one) for one in node.targets} - {""} if isinstance(node, ast.Assign) else given
    return [
        factor
        for term in _parts(node.value, ast.Add)
        for factors in [list(_parts(term, ast.Mult))]
        if any(dotted(one) in states | given for one in factors)
        for factor in factors
        if dotted(factor) not in states | given
    ]


def _parts(value: ast.expr, kind: type[ast.operator]) -> Iterator[ast.expr]:
    """The terms of a sum, or the factors of a product."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, kind):
        yield from _parts(value.left, kind)
        yield from _parts(value.right, kind)
    else:
        yield value


def _is_above_one(value: ast.expr, known: _Known, depth: int) -> bool:
    if depth > DEPTH_MAX:
        return False
    if isinstance(value, ast.Call):
        name, inner = _called(value)
        if name == "exp" and inner is not None:
            return _is_positive(inner, known, depth + 1)
        if name in SAME_SIGN and inner is not None:
            return _is_above_one(inner, known, depth + 1)
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        ones = [side for side in (value.left, value.right) if isinstance(side, ast.Constant) and side.value in (1, 1.0)]
        others = [side for side in (value.left, value.right) if side not in ones]
        return len(ones) == 1 and _is_positive(others[0], known, depth + 1)
    return any(_is_above_one(one, known, depth + 1) for one in _meant(value, known))


def _is_positive(value: ast.expr, known: _Known, depth: int) -> bool:
    """Whether ``value`` is above 0 by construction."""
    if depth > DEPTH_MAX:
        return False
    if isinstance(value, ast.Constant):
        return isinstance(value.value, (int, float)) and value.value > 0
    if isinstance(value, ast.BinOp):
        if isinstance(value.op, ast.Pow) and isinstance(value.right, ast.Constant):
            return value.right.value in (2, 2.0, 4)
        both = all(_is_positive(one, known, depth + 1) for one in (value.left, value.right))
        return both and isinstance(value.op, (ast.Add, ast.Mult, ast.Div))
    if isinstance(value, ast.Call):
        name, inner = _called(value)
        if name in POSITIVE:
            return True
        if name in OF_ENDS:
            numbers = [one.value for one in value.args if isinstance(one, ast.Constant)]
            return bool(numbers) and all(isinstance(one, (int, float)) and one > 0 for one in numbers)
        if name in SAME_SIGN and inner is not None and name != "Parameter":
            others = [_is_positive(one, known, depth + 1) for one in value.args if name == "mul"]
            return _is_positive(inner, known, depth + 1) and all(others)
    return any(_is_positive(one, known, depth + 1) for one in _meant(value, known))


def _called(call: ast.Call) -> tuple[str, ast.expr | None]:
    """The function and what it is applied to: ``("exp", x)`` of ``x.exp()`` and of ``torch.exp(x)``."""
    name = last_name(call.func)
    holder = call.func.value if isinstance(call.func, ast.Attribute) else None
    of_library = holder is None or dotted(holder) in ("torch", "F", "nn", "math", "np", "nn.functional", "torch.nn")
    return name, (call.args[0] if call.args else None) if of_library else holder


def _meant(value: ast.expr, known: _Known) -> list[ast.expr]:
    """What a name, a part of it, or a call of a method of the class stands for."""
    if isinstance(value, ast.Subscript):
        return [value.value]
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and dotted(value.func.value) == "self":
        return [known.methods[value.func.attr]] if value.func.attr in known.methods else []
    name = dotted(value)
    return [known.names[name]] if name in known.names else []
