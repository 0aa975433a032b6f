"""Finds overlapping windows of a series that are split into training and held-out ones at random.

The mistake has two parts: windows that begin every place or every few places, nearer than they are long; and a split
that draws. Each held-out window then lies between two training windows that hold nearly all of it. Windows side by
side, a boundary in time, and windows whose step or length is not known to overlap are none.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from steadytrain.capture.looks.split_names import words
from steadytrain.capture.looks.syntax_trees import dotted, last_name, scopes, statements, walk

SPLITS = frozenset({"train_test_split", "random_split"})
FOLDS = frozenset({"KFold", "StratifiedKFold"})
DRAWN_FOLDS = frozenset({"ShuffleSplit", "StratifiedShuffleSplit"})
ORDERS = re.compile(r"randperm|permutation|permuted")
OF_ANOMALIES = frozenset({"anomaly", "anomalies", "anomalous"})
"""Such models learn what is usual; the unusual rows are other ones."""

LENGTH_MIN_PLACES = 3
RANGE_ARGUMENTS = 3
SIDES = 2


@dataclass
class _Known:
    """What is known at a place of a scope."""

    windows: set[str] = field(default_factory=set)
    orders: set[str] = field(default_factory=set)
    parts: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Variables that hold a part of a drawn order: its side of the boundary, and the boundary."""

    cut: dict[str, set[str]] = field(default_factory=dict)
    """The sides of windows that were taken by a drawn order, by the boundary."""


def split_windows(tree: ast.Module) -> Iterator[int]:
    """The line of the split."""
    if words(tree) & OF_ANOMALIES:
        return
    numbers = _numbers(tree)
    makers = {one.name for one in walk(tree) if isinstance(one, ast.ClassDef) and _gives_windows(one, numbers)}
    functions = [one for one in walk(tree) if isinstance(one, ast.FunctionDef)]
    makers |= {one.name for one in functions if _returns_windows(one, numbers)}
    folds = {
        target
        for one in walk(tree)
        if isinstance(one, ast.Assign) and isinstance(one.value, ast.Call) and _draws_folds(one.value)
        for target in map(dotted, one.targets)
    }
    for scope in scopes(tree):
        known = _Known()
        for node in statements(scope):
            if isinstance(node, ast.Assign):
                _assigned(node, known, makers, numbers)
            elif isinstance(node, ast.For):
                known.windows |= _appended(node, numbers)
            elif isinstance(node, ast.Call):
                if last_name(node.func) == "shuffle" and node.args and dotted(node.args[0]):
                    known.orders.add(dotted(node.args[0]))
                if _splits(node, known, makers, folds, numbers):
                    yield node.lineno
                    return
            if isinstance(node, (ast.Subscript, ast.Call)) and _takes_both_sides(node, known):
                yield node.lineno
                return


def _numbers(tree: ast.Module) -> dict[str, int]:
    """The variables of the module that are whole numbers."""
    return {
        dotted(target): one.value.value
        for one in tree.body
        if isinstance(one, ast.Assign) and isinstance(one.value, ast.Constant) and type(one.value.value) is int
        for target in one.targets
    }


def _splits(call: ast.Call, known: _Known, makers: set[str], folds: set[str], numbers: Mapping[str, int]) -> bool:
    """Whether a call draws a split of windows."""
    name = last_name(call.func)
    holder = call.func.value if isinstance(call.func, ast.Attribute) else None
    of_folds = name == "split" and holder is not None
    drawn = of_folds and (
        dotted(holder) in folds or (isinstance(holder, ast.Call) and _draws_folds(holder))  # type: ignore[arg-type]
    )
    if name not in SPLITS and not drawn:
        return False
    in_order = any(
        one.arg == "shuffle" and not (isinstance(one.value, ast.Constant) and one.value.value is True)
        for one in call.keywords
    )
    return not in_order and any(_holds_windows(one, known, makers, numbers) for one in call.args)


def _draws_folds(call: ast.Call) -> bool:
    shuffles = any(one.arg == "shuffle" and getattr(one.value, "value", None) is True for one in call.keywords)
    return last_name(call.func) in DRAWN_FOLDS or (last_name(call.func) in FOLDS and shuffles)


def _assigned(node: ast.Assign, known: _Known, makers: set[str], numbers: Mapping[str, int]) -> None:
    for target in node.targets:
        both = isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
        names = target.elts if isinstance(target, ast.Tuple) else [target]
        values = node.value.elts if both and isinstance(node.value, ast.Tuple) else [node.value] * len(names)
        for name, value in zip(map(dotted, names), values, strict=False):
            holds = _holds_windows(value, known, makers, numbers)
            drawn = any(isinstance(one, ast.Call) and ORDERS.fullmatch(last_name(one.func)) for one in walk(value))
            part = _side(value, known)
            for group, is_in in ((known.windows, holds), (known.orders, drawn and not part)):
                (group.add if is_in else group.discard)(name)
            known.parts.pop(name, None)
            if part:
                known.parts[name] = part


def _holds_windows(value: ast.AST, known: _Known, makers: set[str], numbers: Mapping[str, int]) -> bool:
    """Whether windows are made in an expression, or read for more than their number."""
    if isinstance(value, ast.Call) and last_name(value.func) in ("len", "range", "int"):
        return False
    if isinstance(value, ast.Attribute) and value.attr == "shape":
        return False
    if isinstance(value, (ast.Name, ast.Attribute)) and dotted(value) in known.windows:
        return True
    if isinstance(value, (ast.ListComp, ast.GeneratorExp)) and _cuts(value, numbers):
        return True
    if isinstance(value, ast.Call) and (last_name(value.func) in makers or _slides(value, numbers)):
        return True
    if isinstance(value, ast.Subscript):
        return _holds_windows(value.value, known, makers, numbers)
    return any(_holds_windows(one, known, makers, numbers) for one in ast.iter_child_nodes(value))


def _cuts(made: ast.ListComp | ast.GeneratorExp, numbers: Mapping[str, int]) -> bool:
    """``[s[i : i + n] for i in range(m)]``, also with more around the slice."""
    if len(made.generators) != 1:
        return False
    loop = made.generators[0]
    return any(_is_window(one, loop.target, loop.iter, numbers) for one in walk(made.elt))


def _appended(loop: ast.For, numbers: Mapping[str, int]) -> set[str]:
    """The lists that a loop appends windows to, also by a variable of the loop."""
    held = {
        dotted(name): value
        for one in walk(loop)
        if isinstance(one, ast.Assign)
        for target in one.targets
        for name, value in zip(getattr(target, "elts", [target]), getattr(one.value, "elts", [one.value]), strict=False)
    }
    index = loop.target
    windows = {name for name, value in held.items() if _is_window(value, index, loop.iter, numbers, held)}
    return {
        dotted(one.func.value)
        for one in walk(loop)
        if isinstance(one, ast.Call)
        and isinstance(one.func, ast.Attribute)
        and one.func.attr == "append"
        and any(
            getattr(each, "id", "") in windows or _is_window(each, index, loop.iter, numbers, held)
            for each in walk(one)
        )
    } - {""}


def _gives_windows(made: ast.ClassDef, numbers: Mapping[str, int]) -> bool:
    """Whether a data set's row is the slice that begins at its index."""
    for one in made.body:
        if isinstance(one, ast.FunctionDef) and one.name == "__getitem__" and len(one.args.args) == SIDES:
            index = ast.Name(one.args.args[1].arg, ast.Load())
            stored = {each.id for each in walk(one) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
            return index.id not in stored and any(_is_window(each, index, None, numbers) for each in walk(one))
    return False


def _returns_windows(function: ast.FunctionDef, numbers: Mapping[str, int]) -> bool:
    lists = {name for one in walk(function) if isinstance(one, ast.For) for name in _appended(one, numbers)}
    returned = [one.value for one in walk(function) if isinstance(one, ast.Return) and one.value is not None]
    return any(
        (isinstance(one, (ast.ListComp, ast.GeneratorExp)) and _cuts(one, numbers))
        or (isinstance(one, ast.Call) and _slides(one, numbers))
        or dotted(one) in lists
        for value in returned
        for one in walk(value)
        if isinstance(one, ast.expr)
    )


def _is_window(
    node: ast.AST,
    target: ast.expr,
    rows: ast.expr | None,
    numbers: Mapping[str, int],
    held: Mapping[str, ast.expr] = MappingProxyType({}),
) -> bool:
    """Whether ``node`` is a slice that begins or ends at ``target``, and is longer than the step of ``rows``; ``held``
    are variables that may be its end.
    """
    if not isinstance(node, ast.Subscript) or not isinstance(target, ast.Name):
        return False
    index = node.slice
    if isinstance(index, ast.Tuple):
        if any(isinstance(one, ast.Slice) and (one.lower or one.upper) for one in index.elts[1:]):
            return False  # patches of an image
        index = index.elts[0] if index.elts else index
    if not isinstance(index, ast.Slice) or index.lower is None or index.upper is None:
        return False
    length = _length(index.lower, held.get(dotted(index.upper), index.upper), target.id)
    step = _step(rows)
    if length is None or step is None:
        return False
    long, far = (_number(one, numbers) for one in (length, step))
    if long is not None and far is not None:
        return far < long and long >= LENGTH_MIN_PLACES
    return far == 1


def _length(lower: ast.expr, upper: ast.expr, target: str) -> ast.expr | None:
    """``n`` of ``i : i + n`` and of ``i - n : i``."""
    if isinstance(lower, ast.Name) and lower.id == target and isinstance(upper, ast.BinOp):
        inner = upper
        while isinstance(inner.left, ast.BinOp):
            inner = inner.left
        if isinstance(inner.op, ast.Add) and getattr(inner.left, "id", "") == target:
            return inner.right
    ends_there = isinstance(upper, ast.Name) and upper.id == target
    if ends_there and isinstance(lower, ast.BinOp) and isinstance(lower.op, ast.Sub):
        return lower.right if getattr(lower.left, "id", "") == target else None
    return None


def _step(rows: ast.expr | None) -> ast.expr | None:
    """The step of ``range(a, b, step)``; of the index of a data set it is 1."""
    if rows is None:
        return ast.Constant(1)
    if not isinstance(rows, ast.Call) or last_name(rows.func) not in ("range", "trange"):
        return None
    return rows.args[2] if len(rows.args) == RANGE_ARGUMENTS else ast.Constant(1)


def _number(value: ast.expr, numbers: Mapping[str, int]) -> int | None:
    if isinstance(value, ast.Constant) and type(value.value) is int:
        return value.value
    return numbers.get(dotted(value))


def _slides(call: ast.Call, numbers: Mapping[str, int]) -> bool:
    """``sliding_window_view(s, n)`` and ``s.unfold(0, n, step)``."""
    name = last_name(call.func)
    if name == "sliding_window_view":
        return True
    if name != "unfold" or len(call.args) != RANGE_ARGUMENTS:
        return False
    long, far = (_number(one, numbers) for one in call.args[1:])
    return far == 1 or (far is not None and long is not None and far < long)


def _side(value: ast.expr, known: _Known) -> tuple[str, str] | None:
    """The side of the boundary that a slice of a drawn order takes, and the boundary."""
    if dotted(value) in known.parts:
        return known.parts[dotted(value)]
    if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Slice):
        of_order = dotted(value.value) in known.orders
        if of_order and value.slice.upper is not None and value.slice.lower is None:
            return "before", ast.unparse(value.slice.upper)
        if of_order and value.slice.lower is not None and value.slice.upper is None:
            return "after", ast.unparse(value.slice.lower)
    return None


def _takes_both_sides(node: ast.Subscript | ast.Call, known: _Known) -> bool:
    """Whether ``x[order[:n]]``, or ``Subset(rows, order[:n])``, takes the second side of windows after the first."""
    if isinstance(node, ast.Call):
        if last_name(node.func) != "Subset" or len(node.args) != SIDES:
            return False
        rows, index = node.args
    else:
        rows, index = node.value, node.slice
    side = _side(index, known) if dotted(rows) in known.windows else None
    if side is None:
        return False
    sides = known.cut.setdefault(side[1], set())
    sides.add(side[0])
    return len(sides) == SIDES
