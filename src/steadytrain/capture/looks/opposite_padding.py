"""Finds inputs that are padded on one side, and labels or masks that are padded on the other.

Read are the places of a function that bring rows to one length: ``F.pad``, lists that are joined with ``[pad] * n``,
``pad_sequence``, slices of a row that are filled, and masks that compare places with lengths. A label is out of place,
too, where the inputs begin at ``width - len(row)`` and the place of the label is counted from 0. Padding by a constant
number is a shift and is not read; nor is a function that pads one thing on either side, a model's ``forward``, or one
that reads a source and a target text.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from steadytrain.capture.looks.split_names import words
from steadytrain.capture.looks.syntax_trees import (
    dotted,
    given_values,
    last_name,
    names_called,
    names_read,
    scopes,
    statements,
    walk,
)

LABELS = frozenset({"label", "labels", "lab", "labs", "y", "ys", "target", "targets", "tags", "mask", "masks", "attn"})
INPUTS = frozenset({"id", "ids", "input", "inputs", "token", "tokens", "tok", "toks", "x", "xs", "seq", "seqs", "text"})
OTHERS = frozenset({"src", "source", "enc", "encoder", "dec", "decoder", "pos", "position", "positions", "len", "lens"})
"""Words of two texts with sides of their own, and of what is no row."""

FILLED = frozenset({"full", "zeros", "ones", "new_full", "new_zeros", "new_ones", "full_like", "zeros_like"})
JOINS = frozenset({"cat", "concat", "concatenate", "hstack"})
GAPS = frozenset({"pad", "pads", "padding", "missing", "gap", "fill", "extra", "short", "rest", "need"})
LENGTHS = frozenset({"len", "lens", "length", "lengths", "size", "shape", "n", "count"})
OF_NUMBERS = frozenset({"len", "int", "max", "min", "size", "sum", "item"})
LEFT, RIGHT = "left", "right"


@dataclass(frozen=True)
class _Padded:
    """One place that pads: on which side, whether labels or a mask, and the line."""

    side: str
    label: bool
    line: int


@dataclass(frozen=True)
class _Numbers:
    """What numbers of a function hold: ``lengths`` those of rows, ``gaps`` what a row lacks, ``places`` all places."""

    lengths: frozenset[str]
    gaps: frozenset[str]
    places: frozenset[str] = frozenset()


def opposite_padding(tree: ast.Module) -> Iterator[int]:
    """The line that pads the labels, or puts them in their place."""
    helpers = _helpers(tree)
    by_tokenizer = _sides_of_tokenizers(tree)
    for scope in scopes(tree):
        if isinstance(scope, ast.Module) or scope.name in ("forward", *helpers):
            continue
        nodes = statements(scope)
        numbers = _numbers(nodes)
        found = [*_pads(nodes, numbers, helpers), *_fills(nodes, numbers)]
        inputs, labels = ({one.side for one in found if one.label is of_label} for of_label in (False, True))
        inputs = inputs or by_tokenizer
        if len(inputs) == len(labels) == 1 and inputs != labels:
            yield next(one.line for one in found if one.label)


def _is_label(named: ast.AST) -> bool | None:
    """True of labels and masks, False of inputs, None of all others."""
    said = words(named)
    if said & OTHERS:
        return None
    return True if said & LABELS else False if said & INPUTS else None


# -- rows that are padded ----------------------------------------------------------------------------------------------


def _pads(nodes: Sequence[ast.AST], numbers: _Numbers, helpers: dict[str, str]) -> Iterator[_Padded]:
    for one in nodes:
        if isinstance(one, ast.Assign):
            pairs = list(given_values(one))
        elif isinstance(one, ast.Call) and last_name(one.func) == "append" and isinstance(one.func, ast.Attribute):
            pairs = [(one.func.value, part) for part in one.args]
        elif isinstance(one, ast.Return) and one.value is not None:
            parts = one.value.elts if isinstance(one.value, ast.Tuple) else [one.value]
            pairs = [pair for part in parts for pair in _of_return(part)]
        else:
            continue
        for target, value in pairs:
            for side, padded in _sides(value, numbers, helpers):
                label = _is_label(target)
                label = _is_label(padded) if label is None else label
                if label is not None and not words(padded) & OTHERS:
                    yield _Padded(side, label, value.lineno)
            side = _side_of_mask(value, numbers)
            if side and _is_label(target):
                yield _Padded(side, True, value.lineno)


def _of_return(part: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    """Keys with their values of a dictionary, and the value alone of all others."""
    if isinstance(part, ast.Dict):
        return [(key, value) for key, value in zip(part.keys, part.values, strict=True) if key is not None]
    return [(part, part)]


def _sides(value: ast.expr, numbers: _Numbers, helpers: dict[str, str]) -> Iterator[tuple[str, ast.expr]]:
    """The side and what is padded, of each padding in ``value``."""
    turned = [one.value for one in walk(value) if isinstance(one, ast.Attribute) and one.attr == "flip"]
    for one in walk(value):
        if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Add):
            if _is_fill(one.left, numbers):
                yield LEFT, one.right
            elif _is_fill(one.right, numbers):
                yield RIGHT, one.left
        elif isinstance(one, ast.Call) and one.args:
            side = _side_of_call(one, numbers, helpers)
            if side:
                yield {LEFT: RIGHT, RIGHT: LEFT}[side] if one in turned else side, one.args[0]


def _side_of_call(call: ast.Call, numbers: _Numbers, helpers: dict[str, str]) -> str:
    name = last_name(call.func)
    if name == "pad_sequence":
        said = next((one.value for one in call.keywords if one.arg == "padding_side"), ast.Constant(RIGHT))
        return str(said.value) if isinstance(said, ast.Constant) and said.value in (LEFT, RIGHT) else ""
    if name == "pad" and len(call.args) > 1 and isinstance(call.args[1], (ast.Tuple, ast.List)):
        return _of_amounts(call.args[1].elts, numbers)
    if name in JOINS and isinstance(call.args[0], (ast.List, ast.Tuple)):
        filled = [_is_fill(one, numbers) for one in call.args[0].elts]
        return LEFT if filled == [True, False] else RIGHT if filled == [False, True] else ""
    return helpers.get(name, "")


def _of_amounts(amounts: Sequence[ast.expr], numbers: _Numbers) -> str:
    """The side of ``(n, 0)`` and ``(0, n)``; "" if ``n`` is no gap: a shift."""
    none = [isinstance(one, ast.Constant) and one.value == 0 for one in amounts]
    if sorted(none) != [False, True] or not _is_gap(amounts[none.index(False)], numbers):
        return ""
    return LEFT if none[1] else RIGHT


def _is_fill(value: ast.expr, numbers: _Numbers) -> bool:
    """Whether ``value`` is ``[pad] * n``, or a call such as ``torch.full((n,), pad)``, of the size of a gap."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult):
        counts = [one for one in (value.left, value.right) if not isinstance(one, (ast.List, ast.Tuple))]
        return len(counts) == 1 and _is_gap(counts[0], numbers)
    if not isinstance(value, ast.Call) or last_name(value.func) not in FILLED or not value.args:
        return False
    return _is_gap(value.args[0], numbers)


def _is_gap(count: ast.expr, numbers: _Numbers) -> bool:
    """Whether a number of places is what a row lacks: a difference, or a variable that holds one or says so."""
    differs = any(isinstance(one, ast.BinOp) and isinstance(one.op, ast.Sub) for one in walk(count))
    return differs or bool(names_read(count) & numbers.gaps) or bool(words(count) & GAPS)


def _side_of_mask(value: ast.expr, numbers: _Numbers) -> str:
    """The side of ``arange(width) < lengths`` (right) and of ``arange(width) >= width - lengths`` (left)."""
    if not (isinstance(value, ast.Compare) and len(value.ops) == 1):
        return ""
    counted, bound = value.left, value.comparators[0]
    if "arange" not in names_called(counted) and not names_read(counted) & numbers.places:
        return ""
    lacks = any(_is_offset(one, numbers.lengths) for one in walk(bound)) or bool(names_read(bound) & numbers.gaps)
    if isinstance(value.ops[0], (ast.Gt, ast.GtE)):
        return LEFT if lacks else ""
    return RIGHT if not lacks and (words(bound) & LENGTHS or names_read(bound) & numbers.lengths) else ""


def _helpers(tree: ast.Module) -> dict[str, str]:
    """The side on which each function of the script that does nothing else pads its first argument."""
    found: dict[str, str] = {}
    for one in (each for each in walk(tree) if isinstance(each, ast.FunctionDef) and each.args.args):
        names = [each.arg for each in one.args.args if each.arg != "self"]
        returned = [each.value for each in statements(one) if isinstance(each, ast.Return) and each.value is not None]
        own = _numbers(statements(one))
        numbers = _Numbers(own.lengths, own.gaps | frozenset(names[1:]))
        sides = {
            side for value in returned for side, pad in _sides(value, numbers, {}) if {*names[:1]} & names_read(pad)
        }
        if len(returned) == 1 and len(sides) == 1:
            found[one.name] = sides.pop()
    return found


def _sides_of_tokenizers(tree: ast.Module) -> set[str]:
    """The sides that ``tokenizer.padding_side`` is set to."""
    return {
        str(one.value.value)
        for one in walk(tree)
        if isinstance(one, ast.Assign)
        and isinstance(one.targets[0], ast.Attribute)
        and one.targets[0].attr == "padding_side"
        and isinstance(one.value, ast.Constant)
    }


# -- rows that are filled ----------------------------------------------------------------------------------------------


def _fills(nodes: Sequence[ast.AST], numbers: _Numbers) -> Iterator[_Padded]:
    """``ids[row, start:] = ...``: rows that stand at the end of their places (left) or at their beginning (right)."""
    for one in (each for each in nodes if isinstance(each, ast.Assign)):
        for target in one.targets:
            if (
                not isinstance(target, ast.Subscript)
                or not isinstance(target.slice, ast.Tuple)
                or not target.slice.elts
            ):
                continue
            place = target.slice.elts[-1]
            label = _is_label(target.value)
            side = _side_of_slice(place, numbers) if isinstance(place, ast.Slice) else ""
            if label is not None and side:
                yield _Padded(side, label, one.lineno)


def _side_of_slice(place: ast.Slice, numbers: _Numbers) -> str:
    ends = [one for one in (place.lower, place.upper) if one is not None]
    if any(names_read(one) & numbers.gaps or _is_offset(one, numbers.lengths) for one in ends):
        return LEFT
    if _is_negative(place.lower):
        return LEFT if place.upper is None and place.lower is not None and names_read(place.lower) else ""
    return RIGHT if any(names_read(one) for one in ends) and not _is_negative(place.upper) else ""


def _is_negative(value: ast.expr | None) -> bool:
    return isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub)


# -- numbers -----------------------------------------------------------------------------------------------------------


def _numbers(nodes: Sequence[ast.AST]) -> _Numbers:
    """The variables that hold lengths, what a row lacks (``start = width - len(row)``) and what is made of them."""
    lengths, gaps, places = set[str](), set[str](), set[str]()
    for one in (each for each in nodes if isinstance(each, ast.Assign)):
        for target, value in given_values(one):
            name = dotted(target)
            calls = names_called(value)
            if "arange" in calls:
                places.add(name)
            if not name or not calls <= OF_NUMBERS or not isinstance(value, (ast.BinOp, ast.Call, ast.Name)):
                continue
            if any(_is_offset(each, lengths) for each in walk(value)) or names_read(value) & gaps:
                gaps.add(name)
            elif "len" in calls and "max" not in calls:
                lengths.add(name)
    return _Numbers(frozenset(lengths), frozenset(gaps), frozenset(places))


def _is_offset(value: ast.AST, lengths: set[str] | frozenset[str]) -> bool:
    """Whether ``value`` is a width less a length."""
    if not (isinstance(value, ast.BinOp) and isinstance(value.op, ast.Sub)):
        return False
    return (
        "len" in names_called(value.right)
        or bool(words(value.right) & LENGTHS)
        or bool(names_read(value.right) & lengths)
    )
