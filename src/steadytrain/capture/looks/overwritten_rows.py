"""Finds a data set that changes its stored rows while it reads them, so that the next epoch trains on other data.

The mistake has two parts: a method takes a stored row without a copy (``x = self.rows[i]``), and it, or a function of
the source that the row is passed to, changes the row in place. Not here: a value that is stored under a name
(``item["image"] = ...``), which is a cache, and an index that copies.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from steadytrain.capture.looks.syntax_trees import (
    body_of,
    dotted,
    given_values,
    last_name,
    names_stored,
    statements,
    walk,
)

READERS = re.compile(r"__getitem__|__getitems__|get|get_\w+|_get\w*|_load\w*|load_\w+|fetch\w*|_sample\w*")
IN_PLACE = re.compile(r"(?!_)\w+[a-z]_")
GROWS = frozenset({"append", "extend", "insert", "pop", "remove", "reverse", "sort", "clear", "shuffle"})
STORED = re.compile(
    r"(?i)(.*_)?(paths?|files?|names?|transforms?|idx|index|indices|cache|lens?|lengths?|offsets?|keys?)(_.*)?"
)
"""Attributes that hold no rows."""

SEVERAL = re.compile(r"(?i)\w*ind(ices|exes)|idxs|ids|which|batch\w*|order\w*|perm\w*|rows|mask")
"""Arguments that name several rows: an index of them copies."""


def overwritten_rows(tree: ast.Module) -> Iterator[int]:
    """The line that changes the row."""
    functions = {one.name: one for one in walk(tree) if isinstance(one, ast.FunctionDef)}
    off = _never_true(tree)
    for holder in (one for one in walk(tree) if isinstance(one, ast.ClassDef)):
        methods = [one for one in holder.body if isinstance(one, ast.FunctionDef)]
        if not any(one.name in ("__getitem__", "__getitems__") for one in methods):
            continue
        for method in methods:
            if READERS.fullmatch(method.name):
                nodes = statements(method)
                skipped = _switched_off(nodes, off)
                yield from _changed([one for one in nodes if id(one) not in skipped], _index(method), functions)
    if _hands_out_rows(tree):
        for name in _collating(tree) & functions.keys():
            yield from _changed_in_batch(functions[name])


def _index(method: ast.FunctionDef) -> set[str]:
    """The names of the arguments that say which row is read."""
    return {one.arg for one in method.args.args} - {"self"}


def _changed(nodes: Sequence[ast.AST], index: set[str], functions: Mapping[str, ast.FunctionDef]) -> Iterator[int]:
    rows: set[str] = set()
    for one in nodes:
        if isinstance(one, ast.Assign):
            for call in (each for each in walk(one.value) if isinstance(each, ast.Call)):
                yield from _changed_by_call(call, rows, functions, index)
            given = _pairs(one)
            rows |= {dotted(name) for name, value in given if _is_stored_row(value, index, rows)}
            rows -= {dotted(name) for name, value in given if not _is_stored_row(value, index, rows) and dotted(name)}
            changed = [target for target in one.targets if _is_part_of(target, rows)]
            if changed:
                yield one.lineno
        elif isinstance(one, ast.AugAssign) and _is_changed_by(one, rows):
            yield one.lineno
        elif isinstance(one, (ast.Expr, ast.Return)):
            for call in (each for each in walk(one) if isinstance(each, ast.Call)):
                yield from _changed_by_call(call, rows, functions, index)


def _switched_off(nodes: Sequence[ast.AST], off: set[str]) -> set[int]:
    """The statements under ``if self.augment:``, where the source gives ``augment`` no value but a false one."""
    return {
        id(each)
        for one in nodes
        if isinstance(one, ast.If) and isinstance(one.test, ast.Attribute) and dotted(one.test) in off
        for statement in one.body
        for each in walk(statement)
    }


def _never_true(tree: ast.Module) -> set[str]:
    """``self.augment`` of arguments that are given, or have by default, nothing but False, None or 0.

    A default counts where no call gives another value.
    """
    given: dict[str, list[ast.expr]] = {}
    default: dict[str, list[ast.expr]] = {}
    for node in walk(tree):
        if isinstance(node, ast.keyword) and node.arg is not None:
            given.setdefault(node.arg, []).append(node.value)
        elif isinstance(node, ast.FunctionDef):
            named = node.args.args[len(node.args.args) - len(node.args.defaults) :]
            for one, value in zip(named, node.args.defaults, strict=True):
                default.setdefault(one.arg, []).append(value)
    return {
        f"self.{name}"
        for name, values in {**default, **given}.items()
        if all(isinstance(value, ast.Constant) and not value.value for value in values)
    }


def _hands_out_rows(tree: ast.Module) -> bool:
    """Whether a batch holds the stored rows themselves: no data set of the source makes others."""
    readers = [one for one in walk(tree) if isinstance(one, ast.FunctionDef) and one.name == "__getitem__"]
    returned = [(one, each.value) for one in readers for each in statements(one) if isinstance(each, ast.Return)]
    return all(value is not None and _is_stored_row(value, _index(one), set()) for one, value in returned)


def _collating(tree: ast.Module) -> set[str]:
    """The functions that loaders are given to make a batch of rows."""
    return {last_name(one.value) for one in walk(tree) if isinstance(one, ast.keyword) and one.arg == "collate_fn"}


def _changed_in_batch(collate: ast.FunctionDef) -> Iterator[int]:
    """The line where a function changes the rows that it makes a batch of."""
    batch = {one.arg for one in collate.args.args[:1]}
    batch -= {name for one in statements(collate) if isinstance(one, ast.Assign) for name in names_stored(one)}
    for loop in (one for one in statements(collate) if isinstance(one, ast.For)):
        if isinstance(loop.iter, ast.Name) and loop.iter.id in batch:
            yield from _changed_argument(body_of(loop), names_stored(loop.target))


def _pairs(node: ast.Assign) -> list[tuple[ast.expr, ast.expr]]:
    """Each target with its value; all variables that one row is unpacked into have that row."""
    return [
        (name, value)
        for target, value in given_values(node)
        for name in (target.elts if isinstance(target, ast.Tuple) else [target])
    ]


def _is_stored_row(value: ast.expr, index: set[str], rows: set[str]) -> bool:
    """Whether ``value`` is ``self.rows[i]``, a part of such a row, or another name of one."""
    if isinstance(value, ast.IfExp):
        return any(_is_stored_row(one, index, rows) for one in (value.body, value.orelse))
    if isinstance(value, ast.Name):
        return value.id in rows
    if not isinstance(value, ast.Subscript):
        return False
    if dotted(value.value) in rows:
        return isinstance(value.slice, (ast.Constant, ast.Name, ast.Slice))
    holder = value.value
    if isinstance(holder, ast.Subscript):
        return _is_stored_row(holder, index, rows)
    is_row = isinstance(value.slice, ast.Name) and value.slice.id in index and not SEVERAL.fullmatch(value.slice.id)
    return is_row and dotted(holder).startswith("self.") and not STORED.fullmatch(last_name(holder))


def _is_part_of(target: ast.expr, rows: set[str]) -> bool:
    """Whether a part of a row is assigned to: ``x[2:5] = 0``; not what is stored under a name."""
    if not isinstance(target, ast.Subscript) or dotted(target.value) not in rows:
        return False
    return not (isinstance(target.slice, ast.Constant) and isinstance(target.slice.value, str))


def _is_changed_by(node: ast.AugAssign, rows: set[str]) -> bool:
    """``x[2:5] *= 2`` of a row, and ``x -= mean``, which changes an array in place."""
    return _is_part_of(node.target, rows) or (
        dotted(node.target) in rows and isinstance(node.op, (ast.Sub, ast.Mult, ast.Div, ast.Add))
    )


def _changed_by_call(
    call: ast.Call, rows: set[str], functions: Mapping[str, ast.FunctionDef], index: set[str]
) -> Iterator[int]:
    if isinstance(call.func, ast.Attribute) and dotted(call.func.value) in rows:
        if _changes(call, rows):
            yield call.lineno
        return
    function = functions.get(last_name(call.func))
    if function is None:
        if last_name(call.func) == "shuffle" and any(dotted(one) in rows for one in call.args):
            yield call.lineno
        return
    names = [one.arg for one in function.args.args if one.arg != "self"]
    given = {name for name, value in zip(names, call.args, strict=False) if _is_stored_row(value, index, rows)}
    if given:
        yield from _changed_argument(statements(function), given)


def _changed_argument(nodes: Sequence[ast.AST], given: set[str]) -> Iterator[int]:
    """The line where a function changes an argument in place, before it gives the name to something else."""
    left = set(given)
    for one in nodes:
        if _changes(one, left):
            yield getattr(one, "lineno", 0)
            return
        if isinstance(one, ast.Assign):
            left -= {name for target in one.targets for name in names_stored(target)}


def _changes(node: ast.AST, rows: set[str]) -> bool:
    """Whether ``node`` changes one of ``rows`` in place."""
    if isinstance(node, ast.Assign):
        return any(_is_part_of(target, rows) for target in node.targets)
    if isinstance(node, ast.AugAssign):
        return _is_part_of(node.target, rows)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and dotted(node.func.value) in rows:
        return IN_PLACE.fullmatch(node.func.attr) is not None or node.func.attr in GROWS
    return False
