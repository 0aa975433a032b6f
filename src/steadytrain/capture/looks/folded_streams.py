"""Finds a stream that is folded into lanes the wrong way round.

``stream.view(steps, lanes)`` puts neighbours of the stream side by side into different lanes: from one step to the next
a lane jumps over as many values as there are lanes. ``stream.view(lanes, steps).t()`` keeps them together. Found is
such a fold of a stream that was cut to whole lanes, and is then read in windows along its first axis, with targets one
step later.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from steadytrain.capture.looks.syntax_trees import (
    Scope,
    argument_names,
    dotted,
    given_values,
    last_name,
    number_of,
    scopes,
    statements,
    walk,
)

FOLDS = frozenset({"view", "reshape", "unflatten"})
LANES = re.compile(r"(?i)(?!.*per_)_?(\w+_)?(lanes?|bsz|bs|b|batch(_?size)?|streams?|n_?seqs?)")
TURNS = frozenset({"t", "transpose", "permute", "swapaxes", "T", "mT"})
AXES = 2


def folded_streams(tree: ast.Module) -> Iterator[int]:
    """The lines of the fold."""
    nodes = [(scope, one) for scope in scopes(tree) for one in statements(scope)]
    read = {name for scope in scopes(tree) for name in _read_with_a_shift(scope)}
    if not read:
        return
    turned = {last_name(one.value) for one in walk(tree) if isinstance(one, ast.Attribute) and one.attr in TURNS}
    cut = set(_cut_to_lanes(tree))
    given = _given_by(tree)
    for scope, node in nodes:
        value = node.value if isinstance(node, (ast.Assign, ast.Return)) else None
        if value is None or not _is_fold(value, cut):
            continue
        if isinstance(node, ast.Assign):
            names = {last_name(target) for target in node.targets}
        else:
            names = {"return"}
        if _returns(scope, names):
            names |= {"return"} | given.get(getattr(scope, "name", ""), set())
        if names & read and not names & turned:
            yield value.lineno


def _read_with_a_shift(scope: Scope) -> Iterator[str]:
    """Names of which a window and the one a step later are read; ``return`` if it is an argument: who knows whose."""
    starts: dict[str, set[str]] = {}
    later: dict[str, set[str]] = {}
    for one in statements(scope):
        of, lower = _window(one)
        if of is None or lower is None:
            continue
        name, start = last_name(of), _shift(lower)
        (starts if start is None else later).setdefault(name, set()).add(start or ast.unparse(lower))
    for name in starts.keys() & later.keys():
        if starts[name] & later[name]:
            yield "return" if name in argument_names(scope) else name


def _window(node: ast.AST) -> tuple[ast.expr | None, ast.expr | None]:
    """What ``rows[i : i + 20]`` and ``rows.narrow(0, i, 20)`` read a window of, and where that begins."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        return node.value, node.slice.lower
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "narrow":
        return None, None
    along_first = len(node.args) == AXES + 1 and number_of(node.args[0]) == 0
    return (node.func.value, node.args[1]) if along_first else (None, None)


def _shift(lower: ast.expr) -> str | None:
    """``i`` of ``i + 1`` and ``1 + i``."""
    if isinstance(lower, ast.BinOp) and isinstance(lower.op, ast.Add):
        for one, other in ((lower.left, lower.right), (lower.right, lower.left)):
            if number_of(other) == 1:
                return ast.unparse(one)
    return None


def _is_fold(value: ast.expr, cut: set[str]) -> bool:
    while isinstance(value, ast.Call) and last_name(value.func) in ("contiguous", "to", "clone", "long", "astype"):
        value = value.func.value if isinstance(value.func, ast.Attribute) else value
        if not isinstance(value, ast.Call):
            return False
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute) or value.func.attr not in FOLDS:
        return False
    of, sizes = value.func.value, value.args
    if value.func.attr == "unflatten":
        sizes = sizes[1:] if sizes and number_of(sizes[0]) == 0 else []
    if dotted(of) in ("np", "numpy", "torch") and sizes:
        of, sizes = sizes[0], sizes[1:]
    if len(sizes) == 1 and isinstance(sizes[0], ast.Tuple):
        sizes = sizes[0].elts
    if len(sizes) != AXES or not _is_lanes(sizes[1]) or _is_lanes(sizes[0]):
        return False
    return _is_cut(of) or last_name(of) in cut


def _is_lanes(size: ast.expr) -> bool:
    return LANES.fullmatch(last_name(size)) is not None


def _cut_to_lanes(tree: ast.Module) -> Iterator[str]:
    for node in walk(tree):
        for target, value in given_values(node) if isinstance(node, ast.Assign) else ():
            if _is_cut(value):
                yield last_name(target)


def _is_cut(value: ast.expr) -> bool:
    """Whether a value is the beginning of a stream, a multiple of the lanes long: ``ids[: n * lanes]``."""
    for one in walk(value):
        ends: list[ast.expr] = []
        if isinstance(one, ast.Subscript) and isinstance(one.slice, ast.Slice) and one.slice.upper is not None:
            ends = [one.slice.upper] if one.slice.lower is None or number_of(one.slice.lower) == 0 else []
        elif isinstance(one, ast.Call) and last_name(one.func) == "narrow":
            ends = one.args[-1:]
        for end in ends:
            parts = [
                each for each in walk(end) if isinstance(each, ast.BinOp) and isinstance(each.op, (ast.Mult, ast.Mod))
            ]
            if any(_is_lanes(side) for part in parts for side in (part.left, part.right)):
                return True
            if isinstance(end, ast.Name) and re.search(r"(?i)usable|keep|n_?(used|kept|whole|full)|cut|total", end.id):
                return True
    return False


def _returns(scope: Scope, names: set[str]) -> bool:
    """Whether a function returns one of ``names``, or is at its ``return``."""
    if isinstance(scope, ast.Module):
        return False
    returned = {
        last_name(one.value) for one in statements(scope) if isinstance(one, ast.Return) and one.value is not None
    }
    return "return" in names or bool(names & returned)


def _given_by(tree: ast.Module) -> dict[str, set[str]]:
    """The names that are given the result of a function, by that function's name."""
    found: dict[str, set[str]] = {}
    for node in walk(tree):
        for target, value in given_values(node) if isinstance(node, ast.Assign) else ():
            if isinstance(value, ast.Call):
                found.setdefault(last_name(value.func), set()).add(last_name(target))
    return found
