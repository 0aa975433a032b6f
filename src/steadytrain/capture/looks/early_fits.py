"""Finds preprocessing that is fitted to all rows, which are split into training and held-out ones afterwards.

The mistake has three parts in one scope: a fit to rows that are named as no part and are no slice; the changed rows, or
what is computed from them; and a split of these. Two kinds differ in their harm. What chooses columns by the labels, or
copies rows, shows the held-out labels and rows to the training. A scaler shows their mean and spread.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from steadytrain.capture.looks.preprocessing_fits import (
    BY_HAND,
    COPIES_ROWS,
    READS_LABELS,
    SCALERS,
    Fit,
    classes_made,
    fits,
)
from steadytrain.capture.looks.split_names import HELD_OUT, TARGETS, TRAINED, holds_held_out, holds_trained, words
from steadytrain.capture.looks.syntax_trees import Scope, dotted, last_name, scopes, statements, walk

SPLITS = frozenset({"train_test_split", "random_split"})
FOLDS = frozenset({"KFold", "StratifiedKFold", "ShuffleSplit", "StratifiedShuffleSplit"})
OF_SERIES = frozenset(
    {"window", "windows", "lookback", "horizon", "lag", "lags", "series", "forecast", "date", "dates"}
)
"""Words of a series in time, where held-out rows are the future and their scale is not known yet."""


def learned_before_split(tree: ast.Module) -> Iterator[int]:
    """The line where labels or rows are shown: a choice of columns by labels, or copies of rows."""
    return _found(tree, harmful=True)


def scaled_before_split(tree: ast.Module) -> Iterator[int]:
    """The line where a scaler, or a mean and a spread, is fitted to all rows."""
    return _found(tree, harmful=False)


def _found(tree: ast.Module, *, harmful: bool) -> Iterator[int]:
    made, in_time = classes_made(tree), bool(words(tree) & OF_SERIES)
    for scope in scopes(tree):
        found = [
            one for one in fits(scope, made) if _is_of_kind(one, harmful=harmful, in_time=in_time) and _is_of_all(one)
        ]
        if not found:
            continue
        folds = {name for name, of in made.items() if of in FOLDS}
        lines = sorted(one.line for one in found if _is_split(_computed_from(scope, one), scope, folds))
        if lines:
            yield lines[0]
            return


def _is_of_kind(fit: Fit, *, harmful: bool, in_time: bool) -> bool:
    """Whether a fit shows labels or rows, or else their scale: by hand, that is told of a series only."""
    if fit.of == BY_HAND:
        return not harmful and in_time
    reads = READS_LABELS.fullmatch(fit.of) is not None or COPIES_ROWS.fullmatch(fit.of) is not None
    return reads if harmful else SCALERS.fullmatch(fit.of) is not None and not words(fit.rows) & TARGETS


def _is_of_all(fit: Fit) -> bool:
    """Whether the rows of a fit are neither a part by name nor some of them by an index or a slice."""
    rows = fit.rows
    while isinstance(rows, (ast.Subscript, ast.Attribute, ast.Call)):
        if isinstance(rows, ast.Subscript) and not _takes_columns(rows.slice):
            return False
        if isinstance(rows, ast.Call):
            if not isinstance(rows.func, ast.Attribute):
                break
            rows = rows.func
        rows = rows.value
    return not holds_trained(fit.rows) and not holds_held_out(fit.rows) and bool(words(fit.rows))


def _takes_columns(index: ast.expr) -> bool:
    """Whether an index takes columns alone: a name, a list of names, or a slice of everything before it."""
    if isinstance(index, ast.Tuple):
        first = index.elts[0] if index.elts else None
        return isinstance(first, ast.Slice) and first.lower is None and first.upper is None
    elements = index.elts if isinstance(index, ast.List) else [index]
    return all(isinstance(one, ast.Constant) and isinstance(one.value, str) for one in elements)


def _computed_from(scope: Scope, fit: Fit) -> dict[str, int]:
    """The variables that hold the changed rows or what is computed from them, with the line that made them so."""
    whole: dict[str, int] = {}
    fitted = fit.name
    for node in statements(scope):
        if not isinstance(node, ast.Assign) or node.end_lineno is None or node.end_lineno < fit.line:
            continue
        gives = last_name(fit.call.func) != "fit" if isinstance(fit.call, ast.Call) else True
        at_once = gives and any(one is fit.call for one in walk(node.value))
        later = fitted and any(
            isinstance(one, ast.Call)
            and last_name(one.func) == "transform"
            and dotted(one.func).rpartition(".")[0] == fitted
            and one.args
            and ast.unparse(one.args[0]) == ast.unparse(fit.rows)
            for one in walk(node.value)
        )
        names = {dotted(one) for target in node.targets for one in _elements(target)}
        if at_once or later or any(dotted(one) in whole for one in walk(node.value) if isinstance(one, ast.expr)):
            whole |= {name: node.lineno for name in names if name}
        else:
            whole = {name: line for name, line in whole.items() if name not in names}
    return whole


def _elements(target: ast.expr) -> list[ast.expr]:
    return [_base(one) for one in (target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target])]


def _base(value: ast.expr) -> ast.expr:
    while isinstance(value, ast.Subscript):
        value = value.value
    return value


def _is_split(whole: dict[str, int], scope: Scope, folds: set[str]) -> bool:
    """Whether rows in ``whole`` are split by a call, or by one boundary into variables that are named as the parts."""
    parts: dict[str, set[str]] = {}
    for node in statements(scope):
        if isinstance(node, ast.Call) and (
            last_name(node.func) in SPLITS
            or (last_name(node.func) == "split" and dotted(node.func).rpartition(".")[0] in folds)
        ):
            if any(dotted(one) in whole for each in node.args for one in walk(each) if isinstance(one, ast.expr)):
                return True
        elif isinstance(node, ast.Assign):
            for target, value in _pairs(node):
                said = words(target)
                side, bound = _boundary(value, whole)
                if bound and ((said & TRAINED and side == "before") or (said & HELD_OUT and side == "after")):
                    parts.setdefault(bound, set()).add(side)
    return any(len(sides) == 2 for sides in parts.values())


def _pairs(node: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    for target in node.targets:
        both = isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
        names, values = (one.elts if both and isinstance(one, ast.Tuple) else [one] for one in (target, node.value))
        yield from zip(names, values, strict=False)


def _boundary(value: ast.expr, whole: dict[str, int]) -> tuple[str, str]:
    """The side and the text of the boundary in ``x[:n]`` or ``x[n:]`` of rows in ``whole``."""
    for one in walk(value):
        if not isinstance(one, ast.Subscript) or dotted(_base(one.value)) not in whole:
            continue
        index = one.slice.elts[0] if isinstance(one.slice, ast.Tuple) and one.slice.elts else one.slice
        if isinstance(index, ast.Slice) and index.upper is not None and index.lower is None:
            return "before", ast.unparse(index.upper)
        if isinstance(index, ast.Slice) and index.lower is not None and index.upper is None:
            return "after", ast.unparse(index.lower)
    return "", ""
