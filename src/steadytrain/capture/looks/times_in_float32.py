"""Finds times and counters that become float32 before a phase, a remainder or a difference is taken of them.

A float32 has 24 bits: near 1.7e9 it holds multiples of 128. An offset that is taken off before, or a division by a day,
leaves what matters.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from steadytrain.capture.looks.syntax_trees import (
    Scope,
    given_values,
    last_name,
    names_called,
    names_read,
    number_of,
    scopes,
    statements,
    walk,
)

TIME = re.compile(
    r"(?i)(.*_)?(ts|time_?stamps?|stamps?|unix(_?time)?|epoch_?(s|sec|secs|seconds|ms|time)|utc|created_at|t_ms|t_ns"
    r"|time_?(s|sec|secs|seconds|ms|ns|us)|secs?_since_epoch|posix(_?time)?)(_.*)?"
)
COLUMN = re.compile(rf"(?i)({TIME.pattern.removeprefix('(?i)')}|(\w+_)?(clocks?|times?|when|t|ticks?|counters?))")
"""A column of a table that is taken apart, of which neighbours are subtracted."""

STORED = re.compile(rf"(?i)({TIME.pattern.removeprefix('(?i)')}|(\w+_)?(ticks?|counters?|clocks?))")
"""The variable that takes them, if the name of what is cast says nothing."""

SINGLE = re.compile(r"(?i)float32|float|single|FloatTensor|f4")
WRAPS = frozenset(
    {"tensor", "as_tensor", "from_numpy", "array", "asarray", "to_numpy", "FloatTensor", "float", "astype", "to"}
    | {"type", "sort", "sorted", "stack", "concatenate", "list", "copy", "contiguous", "view", "reshape", "unsqueeze"}
    | {"squeeze", "item", "tolist", "double", "int64"}
)
"""Calls that leave the numbers as they are."""

FINE = frozenset({"remainder", "fmod", "diff", "sin", "cos", "ediff1d"})
LARGE_MIN = 1e8
DIVIDES = (ast.Div, ast.FloorDiv, ast.Mod)
COARSE_S = 21_600.0
"""A period of six hours and more: 128 seconds are a two-hundredth of it at most."""


def times_in_float32(tree: ast.Module) -> Iterator[int]:
    """The lines where they become float32."""
    large = any(
        isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and abs(node.value) >= LARGE_MIN
        for node in walk(tree)
    )
    if not large and not names_called(tree) & {
        "time",
        "timestamp",
        "to_datetime",
        "read_csv",
        "read_parquet",
        "read_json",
        "DictReader",
        "loads",
        "time_ns",
    }:
        return
    if not _is_fine(tree):
        return
    rebased = set(_rebased(tree))
    named = COLUMN if large else TIME  # a script that only asks for the time may have small ones of its own
    differences = {name for name in _differences(tree) if named.fullmatch(name)}
    targets = {id(value): last_name(target) for node in walk(tree) for target, value in _assigned(node)}
    divided = {id(node.left) for node in walk(tree) if isinstance(node, ast.BinOp) and isinstance(node.op, DIVIDES)}
    for scope in scopes(tree):
        for node in statements(scope):
            if isinstance(node, ast.Call) and id(node) not in divided and (given := _made_single(node)) is not None:
                stored = {one for one in {targets.get(id(node), "")} & differences if STORED.fullmatch(one)}
                names = set(_names(given)) | stored
                if (stored or any(map(TIME.fullmatch, names))) and not names & rebased and _is_whole(given):
                    yield node.lineno
            yield from _typed_columns(node, differences)
        yield from _of_tables(scope, differences)


def _typed_columns(node: ast.AST, differences: set[str]) -> Iterator[int]:
    """``table.astype({"ts": "float32"})``."""
    if isinstance(node, ast.Call) and last_name(node.func) == "astype":
        for kinds in (one for one in node.args if isinstance(one, ast.Dict)):
            for key, kind in zip(kinds.keys, kinds.values, strict=True):
                if isinstance(key, ast.Constant) and str(key.value) in differences and _is_single(kind):
                    yield key.lineno


def _of_tables(scope: Scope, differences: set[str]) -> Iterator[int]:
    """Tables that become float32 as a whole, and then are taken apart into columns, one of them in ``differences``."""
    tables: dict[str, int] = {}
    built: dict[str, ast.expr] = {}
    for node in (one for one in statements(scope) if isinstance(one, ast.Assign)):
        for target, value in given_values(node):
            given = _made_single(value) if isinstance(value, ast.Call) else None
            if isinstance(given, ast.Name) and isinstance(target, ast.Name) and not _subtracts(built.get(given.id)):
                tables[target.id] = value.lineno
            if isinstance(target, ast.Name):
                built[target.id] = value
        for target in (one for one in node.targets if isinstance(one, ast.Tuple)):
            if differences & {last_name(part) for part in target.elts}:
                yield from (tables[name] for name in tables.keys() & names_read(node.value))


def _subtracts(value: ast.expr | None) -> bool:
    """Whether rows are built with a difference: an offset may be taken off there."""
    return value is not None and any(isinstance(one, ast.BinOp) and isinstance(one.op, ast.Sub) for one in walk(value))


def _differences(tree: ast.Module) -> Iterator[str]:
    """The variables whose neighbours are subtracted: ``t[1:] - t[:-1]``, ``torch.diff(t)``."""
    for node in walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
            sides = (node.left, node.right)
            if all(isinstance(one, ast.Subscript) and _has_slice(one.slice) for one in sides):
                names = {last_name(one.value) for one in sides if isinstance(one, ast.Subscript)}
                yield from names if len(names) == 1 else ()
            elif last_name(node.left) and last_name(node.left) == _first_of(node.right):
                yield last_name(node.left)
        elif isinstance(node, ast.Call) and last_name(node.func) in ("diff", "ediff1d"):
            yield from (last_name(one) for one in node.args[:1])
            yield _column(node.func.value) if isinstance(node.func, ast.Attribute) else ""


def _column(value: ast.expr) -> str:
    """The name of a variable, an attribute or a column: ``ts`` of ``table["ts"]``."""
    key = value.slice if isinstance(value, ast.Subscript) else None
    return str(key.value) if isinstance(key, ast.Constant) else last_name(value)


def _first_of(value: ast.expr) -> str:
    """``t`` of ``t[0]``, ``t[:, :1]`` and ``t.min()``."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in ("min", "amin"):
        return last_name(value.func.value)
    return last_name(value.value) if isinstance(value, ast.Subscript) else ""


def _assigned(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    return given_values(node) if isinstance(node, ast.Assign) else iter(())


def _has_slice(index: ast.expr) -> bool:
    return any(isinstance(one, ast.Slice) for one in (index.elts if isinstance(index, ast.Tuple) else [index]))


def _made_single(call: ast.Call) -> ast.expr | None:
    """What a call turns into float32; None of another call."""
    name = last_name(call.func)
    of = call.func.value if isinstance(call.func, ast.Attribute) else None
    kinds = [*call.args, *(word.value for word in call.keywords if word.arg == "dtype")]
    if name == "float" and of is not None and not call.args:
        return of
    if name in ("astype", "to", "type", "to_numpy") and of is not None and any(map(_is_single, kinds)):
        return of
    if name in ("FloatTensor", "float32") and call.args:
        return call.args[0]
    if name in ("tensor", "as_tensor", "array", "asarray") and call.args:
        dtypes = [word.value for word in call.keywords if word.arg == "dtype"] + call.args[1:]
        return call.args[0] if any(map(_is_single, dtypes)) else None
    return None


def _is_single(kind: ast.expr) -> bool:
    text = str(kind.value) if isinstance(kind, ast.Constant) else last_name(kind)
    return SINGLE.fullmatch(text) is not None and not (isinstance(kind, ast.Name) and text == "float")


def _is_whole(given: ast.expr) -> bool:
    """Whether the numbers are taken as they are: no offset is taken off and nothing is computed of them before."""
    for node in walk(given):
        if isinstance(node, ast.BinOp) and not isinstance(node.op, ast.Add):
            return False
        if isinstance(node, ast.Call) and last_name(node.func) not in WRAPS:
            return False
    return True


def _names(given: ast.expr) -> Iterator[str]:
    for node in walk(given):
        if isinstance(node, (ast.Name, ast.Attribute)):
            yield last_name(node)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            key = str(node.slice.value)
            yield "epoch_s" if key == "epoch" else key  # a column of that name holds no number of passes


def _rebased(tree: ast.Module) -> Iterator[str]:
    """Variables and columns of which an offset was taken, or which are whole days."""
    for node in walk(tree):
        if isinstance(node, ast.AugAssign) and isinstance(node.op, (ast.Sub, *DIVIDES)):
            yield from _names(node.target)
        value = node.value if isinstance(node, ast.Assign) else None
        if value is not None and any(isinstance(one, ast.Constant) and _is_epoch(one.value) for one in walk(value)):
            continue
        if isinstance(node, ast.Assign) and isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Sub, *DIVIDES)):
            yield from (name for target in node.targets for name in _names(target))


def _is_epoch(value: object) -> bool:
    """Whether it is the date from which unix times are counted: what that is taken off from stays large."""
    return isinstance(value, str) and value.startswith("1970")


def _is_fine(tree: ast.Module) -> bool:
    """Whether anything of them is finer than six hours: a remainder or a phase of a shorter or of an unknown period, or
    a difference."""
    for node in walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and not isinstance(node.left, ast.Constant):
            period = number_of(node.right)
            if period is None or 2 < period < COARSE_S:
                return True
        if isinstance(node, ast.Call) and last_name(node.func) in FINE:
            return True
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
            since = last_name(node.left)
            if _are_parts(node.left, node.right) or (since and since == _first_of(node.right)):
                return True
    return False


def _are_parts(*values: ast.expr) -> bool:
    return all(isinstance(one, ast.Subscript) for one in values)
