"""Names the lines of the script that changed a model's input after the loader returned it.

The lines are read from the source when an incident is written: the assignments of the variable that the model was
called with, and the statements that change it in place, from the head of the loop to the call. Nothing is executed.
Code of installed packages is not searched: what a framework does with every batch says nothing about this one.
"""

from __future__ import annotations

import ast
import linecache
import os
import sysconfig
from collections.abc import Iterator, Sequence
from itertools import pairwise

from steadytrain.capture.step.input_recorder import MicroBatch, tensors_in
from steadytrain.capture.step.script_frames import FrameLine

LINES_MAX = 3
CODE_MAX = 120
NAMES_MAX = 8
"""Variables that are followed back: ``x = y.view(-1)`` leads from ``x`` to ``y``."""

MOVING = frozenset({
    "to", "cuda", "cpu", "pin_memory", "contiguous", "view", "reshape", "flatten", "unsqueeze", "squeeze", "permute",
    "transpose", "detach", "clone",
})  # fmt: skip
"""Methods that move or reshape a tensor and make no value. ``to`` with a narrow dtype is none of them."""

NARROW = ("16", "half", "float8")
INSTALLED = (
    f"{os.sep}site-packages{os.sep}",
    f"{os.sep}dist-packages{os.sep}",
    f"{sysconfig.get_path('stdlib')}{os.sep}",
)
"""What the path of an installed module holds. A script that runs under ``cProfile`` or ``pdb`` has such frames too."""


def lines_before(call: MicroBatch) -> tuple[str, ...]:
    """The lines that changed a non-finite input of ``call``, as text, in their order; empty if they are not known."""
    place = call.frames[0] if call.frames else None
    if place is None or any(part in place.code.co_filename for part in INSTALLED):
        return ()
    tree = _tree_of(place)
    if tree is None:
        return ()
    scope = _innermost(tree, place.line, (ast.FunctionDef, ast.AsyncFunctionDef)) or tree
    made = _call_at(scope, place.line, call)
    if made is None:
        return ()
    scope = _innermost(scope, place.line, (ast.For, ast.AsyncFor, ast.While)) or scope
    found = [line for argument in _bad_arguments(made, call) for line in _lines_of(scope, argument, made)]
    return tuple(_text(place, line) for line in sorted(set(found))[-LINES_MAX:])


def _tree_of(place: FrameLine) -> ast.Module | None:
    source = "".join(linecache.getlines(place.code.co_filename))
    try:
        return ast.parse(source) if source else None
    except (SyntaxError, ValueError):
        return None


def _innermost(tree: ast.AST, line: int, kinds: tuple[type[ast.AST], ...]) -> ast.AST | None:
    around = [node for node in ast.walk(tree) if isinstance(node, kinds) and _covers(node, line)]
    return max(around, key=lambda node: getattr(node, "lineno", 0), default=None)


def _covers(node: ast.AST, line: int) -> bool:
    return getattr(node, "lineno", line + 1) <= line <= getattr(node, "end_lineno", 0)


def _call_at(scope: ast.AST, line: int, call: MicroBatch) -> ast.Call | None:
    """The expression that called the model: the only one on its line with these arguments."""
    named = set(call.kwargs)
    found = [
        node
        for node in ast.walk(scope)
        if isinstance(node, ast.Call)
        and _covers(node, line)
        and len(node.args) == len(call.args)
        and {one.arg for one in node.keywords} == named
        and not any(isinstance(one, ast.Starred) for one in node.args)
    ]
    outer = [node for node in found if not _moves(node)]
    return outer[0] if len(outer) == 1 or (outer and _within(outer)) else None


def _within(calls: Sequence[ast.Call]) -> bool:
    """Whether each is inside of the one before: ``net(augment(x))``, where the model is the outermost."""
    return all(inner in set(ast.walk(outer)) for outer, inner in pairwise(calls))


def _bad_arguments(made: ast.Call, call: MicroBatch) -> Iterator[ast.expr]:
    for expression, value in zip(made.args, call.args, strict=True):
        if _is_bad(value):
            yield expression
    for keyword in made.keywords:
        if keyword.arg is not None and _is_bad(call.kwargs[keyword.arg]):
            yield keyword.value


def _is_bad(value: object) -> bool:
    return any(
        tensor.is_floating_point() and not tensor.is_nested and not bool(tensor.detach().isfinite().all())
        for tensor in tensors_in(value)
    )


def _lines_of(scope: ast.AST, argument: ast.expr, made: ast.Call) -> Iterator[int]:
    names, pending = set[str](), [argument]
    while pending and len(names) < NAMES_MAX:
        expression = _unmoved(pending.pop())
        if isinstance(expression, (ast.Call, ast.BinOp)):
            yield expression.lineno
        if isinstance(expression, ast.Call):
            continue  # what it was called with is inside of that function's line
        for name in {node.id for node in ast.walk(expression) if isinstance(node, ast.Name)} - names:
            names.add(name)
            for line, value in _changes(scope, name, made.lineno):
                if value is None:
                    yield line
                else:
                    pending.append(value)


def _changes(scope: ast.AST, name: str, before: int) -> Iterator[tuple[int, ast.expr | None]]:
    """The statements above the line ``before`` that assign ``name`` (with the value) or change it in place (None)."""
    for node in ast.walk(scope):
        line = getattr(node, "lineno", before)
        if line >= before:
            continue
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name) and target.id == name:
                    yield line, node.value
                elif isinstance(target, ast.Subscript) and _base(target) == name:
                    yield line, None
        elif _in_place(node, name):
            yield line, None


def _in_place(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.AugAssign):
        return _base(node.target) == name
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and _works_on(node.value, name)


def _works_on(call: ast.Call, name: str) -> bool:
    """A call whose result is not used: ``x.mul_(2)``, ``corrupt(x)``."""
    method = call.func
    if isinstance(method, ast.Attribute) and method.attr.endswith("_") and _base(method.value) == name:
        return True
    return isinstance(method, ast.Name) and method.id != "print" and any(_base(one) == name for one in call.args)


def _base(expression: ast.expr) -> str | None:
    """The variable that ``x[0].y`` is a part of."""
    while isinstance(expression, (ast.Subscript, ast.Attribute)):
        expression = expression.value
    return expression.id if isinstance(expression, ast.Name) else None


def _unmoved(expression: ast.expr) -> ast.expr:
    """``x`` for ``x.to(device).view(-1)``."""
    while isinstance(expression, ast.Call) and _moves(expression):
        assert isinstance(expression.func, ast.Attribute)
        expression = expression.func.value
    return expression


def _moves(call: ast.Call) -> bool:
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in MOVING:
        return False
    given = " ".join(ast.unparse(one) for one in (*call.args, *(word.value for word in call.keywords)))
    return call.func.attr != "to" or not any(word in given for word in NARROW)


def _text(place: FrameLine, line: int) -> str:
    code = linecache.getline(place.code.co_filename, line).strip()[:CODE_MAX]
    return f"{place.code.co_filename}:{line}   {code}"
