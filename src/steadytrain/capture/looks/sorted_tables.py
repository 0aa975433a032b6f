"""Finds records that are sorted by one key first, and made into a table as if they had been sorted by the other.

``np.lexsort((meter, hour))`` sorts by hour, its last key. A reshape to ``(meters, hours)`` then puts readings of all
meters into each row. The keys are compared with the sizes by their names; a word of time is as good as another.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from steadytrain.capture.looks.split_names import words
from steadytrain.capture.looks.syntax_trees import assignments, dotted, last_name, scopes, statements, walk

OF_TIME = frozenset(
    {"time", "times", "t", "ts", "timestamp", "timestamps", "hour", "hours", "day", "days", "step", "steps"}
    | {"date", "dates", "week", "weeks", "month", "months", "year", "years", "minute", "minutes", "second"}
    | {"seconds", "tick", "ticks", "frame", "frames", "period", "periods", "quarter", "quarters", "slot", "slots"}
    | {"length"}
)
NOT_TELLING = frozenset(
    {"n", "num", "number", "count", "counts", "len", "size", "sizes", "total", "max", "id", "ids", "idx"}
    | {"index", "cfg", "config", "args", "self", "key", "keys", "col", "per", "of", "no", "nunique", "unique"}
    | {"int", "df", "data", "conf", "c", "opt", "p", "np", "rows", "row", "record", "records", "log", "logs"}
    | {"table"}
)
MAKES_TABLE = frozenset({"reshape", "view"})
CUTS = frozenset({"split", "array_split", "chunk", "tensor_split"})
TIME = "time"


def sorted_tables(tree: ast.Module) -> Iterator[int]:
    """The line that makes the table, or cuts it into rows."""
    for scope in scopes(tree):
        nodes = statements(scope)
        named = _tuples(nodes)
        keys: list[set[str]] = []
        for one in nodes:
            for call in walk(one) if isinstance(one, ast.Call) else ():  # a reshape may hold the sort
                found = _keys(call, named) if isinstance(call, ast.Call) else []
                keys = [_stems(each) for each in found] if len(found) > 1 else keys
            sizes = (_of_chunks(one) if isinstance(one, ast.For) else _sizes(one)) if keys else []
            if sizes and _is_exchanged(keys, sizes):
                assert isinstance(one, (ast.Call, ast.Subscript, ast.For))
                yield one.lineno
                break


def _is_exchanged(keys: Sequence[set[str]], sizes: Sequence[set[str]]) -> bool:
    """Whether another key than the first one, by which the records were sorted, is that of the table's rows."""
    rows, places = sizes[0], sizes[1]
    first, others = keys[0], keys[1:]
    if first & rows or any(each & places for each in others):
        return False
    of_rows = any(each & rows for each in others)
    if not places:
        return of_rows
    return bool(first & places) and (not rows or of_rows or TIME not in rows)


def _tuples(nodes: Sequence[ast.AST]) -> dict[str, list[ast.expr]]:
    """Tuples and lists that are given to a variable: ``keys = (hour, meter)``."""
    return {dotted(name): value.elts for name, value in assignments(nodes) if isinstance(value, (ast.Tuple, ast.List))}


def _keys(call: ast.Call, named: dict[str, list[ast.expr]]) -> list[ast.AST]:
    """The keys that ``call`` sorts by, the one that counts most first; empty if it does not sort by several."""
    name = last_name(call.func)
    by = {one.arg: one.value for one in call.keywords}
    given = by.get("by") or by.get("order") or (call.args[0] if call.args else None)
    if name == "lexsort" and (given := by.get("keys") or given) is not None:
        return list(reversed(_parts(given, named)))
    if name in ("sort_values", "sort") and given is not None and "key" not in by:
        listed = _parts(given, named) or [one for one in call.args if isinstance(one, ast.Constant)]
        return [one for one in listed if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    key = by.get("key") if name in ("sorted", "sort") else None
    if isinstance(key, ast.Lambda) and isinstance(key.body, ast.Tuple):
        return list(key.body.elts)
    if isinstance(key, ast.Call) and last_name(key.func) in ("attrgetter", "itemgetter"):
        return list(key.args)
    return []


def _parts(given: ast.expr, named: dict[str, list[ast.expr]]) -> list[ast.expr]:
    return list(given.elts) if isinstance(given, (ast.Tuple, ast.List)) else named.get(dotted(given), [])


def _sizes(node: ast.AST) -> list[set[str]]:
    """What the first two sizes of a table are named by; an empty set of one that is not named."""
    if isinstance(node, ast.Subscript):
        return _of_block(node.slice.elts[0] if isinstance(node.slice, ast.Tuple) and node.slice.elts else node.slice)
    if not isinstance(node, ast.Call):
        return []
    name, arguments = last_name(node.func), list(node.args)
    holder = node.func.value if isinstance(node.func, ast.Attribute) else None
    if holder is None or dotted(holder) in ("np", "numpy", "torch"):
        arguments = arguments[1:]
    if name in CUTS and len(arguments) == 1:
        return [_stems(arguments[0]), set()]
    if name not in MAKES_TABLE or not arguments:
        return []
    if len(arguments) == 1 and isinstance(arguments[0], (ast.Tuple, ast.List)):
        arguments = arguments[0].elts
    return [_stems(one) for one in arguments[:2]] if len(arguments) > 1 else []


def _of_block(place: ast.expr) -> list[set[str]]:
    """The same of ``x[i * hours : (i + 1) * hours]``, a row of the table."""
    lower = place.lower if isinstance(place, ast.Slice) else None
    if not (isinstance(lower, ast.BinOp) and isinstance(lower.op, ast.Mult) and isinstance(place, ast.Slice)):
        return []
    upper = {dotted(one) for one in walk(place.upper) if isinstance(one, ast.expr)} if place.upper else set()
    size = [one for one in (lower.left, lower.right) if _stems(one) and dotted(one) in upper]
    return [set(), _stems(size[-1])] if size else []


def _of_chunks(loop: ast.For) -> list[set[str]]:
    """The same of ``for start in range(0, len(x), hours)``, whose body takes ``x[start : start + hours]``."""
    steps = loop.iter.args if isinstance(loop.iter, ast.Call) and last_name(loop.iter.func) == "range" else []
    if len(steps) != 3 or not isinstance(loop.target, ast.Name):
        return []
    size, start = dotted(steps[2]), loop.target.id
    for one in (each for part in loop.body for each in walk(part) if isinstance(each, ast.Slice)):
        upper = {dotted(each) for each in walk(one.upper) if isinstance(each, ast.expr)} if one.upper else set()
        if size and one.lower is not None and dotted(one.lower) == start and {size, start} <= upper:
            return [set(), _stems(steps[2])]
    return []


def _stems(node: ast.AST) -> set[str]:
    """The telling words of a key or a size in the singular; ``time`` stands for all words of time."""
    told = words(node) - NOT_TELLING
    return {
        TIME if one in OF_TIME else re.sub(r"ies$", "y", one).rstrip("s") for one in told if len(one) > 1 or one == "t"
    }
