"""Finds inputs and labels that are brought into separate orders, and paired again row by row.

One of the two is shuffled or sorted, and the other is not, or by a draw of its own. A variable that was computed from
another one has its order.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import TypeGuard

from steadytrain.capture.looks.syntax_trees import Scope, last_name, names_read, scopes, statements, walk

SORTS = frozenset({"sort", "reverse"})
DISTINCT = frozenset({"unique", "set"})
"""What they give in another variable are the values that occur, as the names of the classes, and no longer rows."""

REORDERS = frozenset({"sorted", "permutation", "permuted"}) | DISTINCT
MOVES = SORTS | REORDERS | {"shuffle"}
DRAWS_ORDER = re.compile(r"randperm|permutation|argsort|permuted")
SEEDED = re.compile(r"manual_seed|seed|default_rng|RandomState|Random")
STATE = re.compile(r"(get|set)_?(rng_)?state")
KEEPS_ROWS = re.compile(r"list|tuple|array|asarray|tensor|as_tensor|from_numpy|float|long|to|astype|copy|clone")
HAS_NO_ORDER = re.compile(r"range|arange|ones|zeros|full|empty|len|ones_like|zeros_like|count")
PAIRS = re.compile(r"(?i)zip|\w*dataset|\w*loader|\w*data|fit|train|train_model|pairs")
DATA = re.compile(
    r"(?i)(.*_)?(xs?|ys?|x_?\w{2,5}|y_?\w{2,5}|in?puts?|features?|labels?|targets?|texts?|sentences?|docs?|images?|imgs?|"
    r"questions?|answers?|prompts?|responses?|sources?|src|tgt|data|samples?|rows|classes|tags|masks?|captions?)(_.*)?"
)
"""What ``zip`` pairs is data of a training if one of its variables is named so."""

PAIR = 2


@dataclass(frozen=True)
class _Rows:
    """A variable that holds rows: the line where it, or what it was computed from, was first assigned; the order that
    it was brought into, "" for the first one, and the line of that; the variable whose rows it has."""

    born: int
    source: str
    order: str = ""
    moved: int = 0
    together: int = 0
    """The line that gave it together with others: arguments, or the results of one call."""


@dataclass
class _Known:
    """What is known at a place of a scope."""

    rows: dict[str, _Rows] = field(default_factory=dict)
    orders: dict[str, str] = field(default_factory=dict)
    """Variables that hold an order, with the draw that made it."""

    shuffling: Mapping[str, bool] = field(default_factory=dict)
    """Functions that give the rows of their first argument in a new order, and whether they draw it from a seed."""

    records: frozenset[str] = frozenset()
    """Lists that are filled with dicts: such rows are found by a key, wherever they stand."""

    seed: str = ""
    since_seed: int = 0


def separate_orders(tree: ast.Module) -> Iterator[int]:
    """The line of the change of order."""
    drawn = [one for one in walk(tree) if isinstance(one, ast.Call) and DRAWS_ORDER.fullmatch(last_name(one.func))]
    shuffling = {one.name: _is_seeded(one) for one in walk(tree) if drawn and _is_shuffling(one)}
    for scope in scopes(tree):
        if not any(_moves(one, shuffling) for one in statements(scope)):
            continue
        known, told = _Known(shuffling=shuffling, records=_records(scope)), set()
        if not isinstance(scope, ast.Module):
            for one in scope.args.args:
                known.rows[one.arg] = _Rows(scope.lineno, one.arg, together=scope.lineno)
        waiting: ast.Assign | None = None
        for node in statements(scope):
            if waiting is not None and isinstance(node, ast.stmt):  # what it reads has been seen with its old order
                _assigned(waiting, known)
                waiting = None
            for line in _apart(node, known):
                if line not in told:
                    told.add(line)
                    yield line
            if isinstance(node, ast.Call) and STATE.fullmatch(last_name(node.func)):
                known.seed, known.since_seed = "state", 0
            elif isinstance(node, ast.Call) and SEEDED.fullmatch(last_name(node.func)):
                known.seed, known.since_seed = ast.unparse(node), 0
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                _called(node.value, known)
            waiting = node if isinstance(node, ast.Assign) else waiting


def _moves(node: ast.AST, shuffling: Mapping[str, bool]) -> bool:
    """Whether a call by its name brings rows into another order."""
    name = last_name(node.func) if isinstance(node, ast.Call) else ""
    return name in MOVES or name in shuffling or DRAWS_ORDER.fullmatch(name) is not None


def _called(call: ast.Call, known: _Known) -> None:
    """``rng.shuffle(rows)`` and ``rows.sort()``."""
    name = last_name(call.func)
    if name == "shuffle" and call.args and isinstance(call.args[0], ast.Name):
        known.since_seed += 1  # the first shuffles after one seed are the same one
        drawn = f"{ast.unparse(call.func)}:{known.seed}:{known.since_seed}"
        _move(call.args[0].id, call.lineno, ast.unparse(call.func) if _is_seeded(call.func) else drawn, known)
    if name in SORTS and isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
        _move(call.func.value.id, call.lineno, f"{name}:{call.lineno}", known)


def _move(name: str, line: int, order: str, known: _Known) -> None:
    if name in known.rows:
        known.rows[name] = replace(known.rows[name], order=order, moved=line)


def _assigned(node: ast.Assign, known: _Known) -> None:
    before = dict(known.rows)
    for name, value in _values(node):
        read = names_read(value)
        drawn = _draw_in(value)
        held = next((known.orders[one] for one in read if one in known.orders), None)
        of_itself = isinstance(value, ast.Call) and name in read
        if (drawn or held) and not of_itself and not isinstance(value, ast.Subscript):
            known.orders[name] = drawn or held or ""
            known.rows.pop(name, None)
            continue
        if isinstance(value, ast.Call) and HAS_NO_ORDER.fullmatch(last_name(value.func)):
            known.rows.pop(name, None)
            continue
        base = _base(value)
        if name not in read and any(
            isinstance(one, ast.Call) and last_name(one.func) in DISTINCT for one in walk(value)
        ):
            known.rows.pop(name, None)
            continue
        if isinstance(value, ast.Call) and last_name(value.func) in known.shuffling and value.args:
            base = _base(value.args[0])
        from_rows = [before[one] for one in _rows_read(value) if one in before]
        born = min((one.born for one in from_rows), default=node.lineno)
        moved = max(from_rows, key=lambda one: one.moved, default=_Rows(node.lineno, name))
        source = before[base].source if base in before else name
        together = moved.together if base else node.lineno if isinstance(node.targets[0], ast.Tuple) else 0
        known.rows[name] = replace(moved, born=born, source=source, together=together)
        order = _order_of(value, base, known)
        if order and base in before:
            known.rows[name] = _Rows(born, source, order, node.lineno, before[base].together)


def _order_of(value: ast.expr, base: str, known: _Known) -> str:
    """The order that ``rows[permutation]``, ``sorted(rows)`` or ``list(set(rows))`` brings ``base`` into."""
    for one in walk(value):
        if isinstance(one, ast.Subscript) and last_name(one.value) == base:
            rows = one.slice.elts[0] if isinstance(one.slice, ast.Tuple) and one.slice.elts else one.slice
            held = next((known.orders[name] for name in sorted(names_read(rows)) if name in known.orders), "")
            drawn = _draw_in(rows)
            return held or drawn or ""
        if isinstance(one, ast.Call) and last_name(one.func) in REORDERS:
            return f"{last_name(one.func)}:{one.lineno}:{one.col_offset}"
        if isinstance(one, ast.Call) and last_name(one.func) in known.shuffling:
            seeded = known.shuffling[last_name(one.func)]
            place = f"{one.lineno}:{one.col_offset}"
            return f"{last_name(one.func)}:{[ast.unparse(each) for each in one.args[1:]] if seeded else place}"
    return ""


def _base(value: ast.expr, *, of_any_call: bool = False) -> str:
    """The variable whose rows an expression has: of an index, a conversion, a copy, or of any call of one argument."""
    while True:
        if isinstance(value, ast.Subscript):
            value = value.value
        elif isinstance(value, ast.BinOp):
            value = value.left
        elif isinstance(value, ast.Call) and (_keeps(value) or (of_any_call and len(value.args) == 1)):
            inside = value.args[0] if value.args else value.func
            value = inside.value if isinstance(inside, ast.Attribute) and inside is value.func else inside
        else:
            return value.id if isinstance(value, ast.Name) else ""


def _keeps(call: ast.Call) -> bool:
    name = last_name(call.func)
    of_method = isinstance(call.func, ast.Attribute) and not call.args
    reorders = name in REORDERS and len(call.args) == 1
    return (KEEPS_ROWS.fullmatch(name) is not None and (bool(call.args) or of_method)) or reorders


def _draw_in(value: ast.AST) -> str | None:
    """The call in ``value`` that draws a new order, with its place; without, where it draws from a seed of its own."""
    calls = (one for one in walk(value) if isinstance(one, ast.Call))
    drawn = next((one for one in calls if DRAWS_ORDER.fullmatch(last_name(one.func))), None)
    if drawn is None:
        return None
    return ast.unparse(drawn) if _is_seeded(drawn) else f"{drawn.lineno}:{drawn.col_offset}"


def _is_shuffling(node: ast.AST) -> TypeGuard[ast.FunctionDef]:
    """Whether a function returns its first argument in an order that it draws."""
    if not isinstance(node, ast.FunctionDef) or not node.args.args:
        return False
    first = node.args.args[1 if node.args.args[0].arg == "self" and len(node.args.args) > 1 else 0].arg
    drawn = {
        target.id
        for one in walk(node)
        if isinstance(one, ast.Assign) and _draw_in(one.value)
        for target in one.targets
        if isinstance(target, ast.Name)
    }
    returned = [one.value for one in walk(node) if isinstance(one, ast.Return)]
    return any(
        isinstance(one, ast.Subscript)
        and last_name(one.value) == first
        and (_draw_in(one.slice) is not None or bool(names_read(one.slice) & drawn))
        for one in returned
    )


def _rows_read(value: ast.AST) -> set[str]:
    """The variables that are read in ``value`` for more than their size."""
    if isinstance(value, ast.Call) and last_name(value.func) in ("len", "size"):
        return set()
    if isinstance(value, ast.Attribute) and value.attr in ("shape", "size"):
        return set()
    if isinstance(value, ast.Name):
        return {value.id}
    return {name for child in ast.iter_child_nodes(value) for name in _rows_read(child)}


def _is_seeded(node: ast.AST) -> bool:
    """Whether a generator with a seed is made in ``node``."""
    calls = (one for one in walk(node) if isinstance(one, ast.Call))
    return any(SEEDED.fullmatch(last_name(one.func)) and one.args for one in calls)


def _apart(node: ast.AST, known: _Known) -> Iterator[int]:
    """Where two variables that ``node`` pairs row by row came apart."""
    pairs = _of_call(node, known) if isinstance(node, ast.Call) else _of_tuple(node, known)
    for one, two in pairs:
        both_sorted = one.order.startswith("sort") and two.order.startswith("sort")  # names of images, and of masks
        if one.order == two.order or one.source == two.source or both_sorted:
            continue
        later, earlier = (one, two) if one.moved >= two.moved else (two, one)
        if earlier.born < later.moved:
            yield later.moved


def _of_call(call: ast.Call, known: _Known) -> Iterator[tuple[_Rows, _Rows]]:
    """The rows that ``TensorDataset(x, y)`` or ``zip(x, y)`` pairs."""
    if not PAIRS.fullmatch(last_name(call.func)):
        return
    names = [base for one in call.args if (base := _base(one)) in known.rows]
    if last_name(call.func) == "zip" and not any(map(DATA.fullmatch, names)):
        return
    yield from combinations([known.rows[name] for name in names], 2)


def _of_tuple(node: ast.AST, known: _Known) -> Iterator[tuple[_Rows, _Rows]]:
    """The rows of ``x[i], y[i]``, which one index takes, and of a pair that is returned as it was given."""
    if not isinstance(node, ast.Tuple) or not isinstance(node.ctx, ast.Load) or len(node.elts) != PAIR:
        return
    names = [_base(each, of_any_call=True) for each in node.elts]
    if not all(name in known.rows for name in names):
        return
    rows = known.rows[names[0]], known.rows[names[1]]
    index = [_index(each) for each in node.elts]
    given = rows[0].together == rows[1].together != 0
    alike = len(names[0]) > 1 and names[0][:-1].lower() == names[1][:-1].lower()  # xs and xt of two domains
    given = given and not known.records.intersection(names)
    if not alike and (given or (index[0] and index[0] == index[1])):
        yield rows


def _records(scope: Scope) -> frozenset[str]:
    calls = (one for one in statements(scope) if isinstance(one, ast.Call) and last_name(one.func) == "append")
    return frozenset(
        one.func.value.id
        for one in calls
        if isinstance(one.func, ast.Attribute)
        and isinstance(one.func.value, ast.Name)
        and any(isinstance(each, ast.Dict) for each in one.args)
    )


def _index(value: ast.expr) -> str:
    """The innermost index of ``x[i]`` or ``torch.tensor(x[i])``, as text."""
    for one in walk(value):
        if isinstance(one, ast.Subscript):
            return ast.unparse(one.slice)
    return ""


def _values(node: ast.Assign) -> Iterator[tuple[str, ast.expr]]:
    for target in node.targets:
        if isinstance(target, ast.Name):
            yield target.id, node.value
        elif isinstance(target, ast.Tuple):
            parts = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value] * len(target.elts)
            for one, part in zip(target.elts, parts, strict=False):
                if isinstance(one, ast.Name):
                    yield one.id, part
