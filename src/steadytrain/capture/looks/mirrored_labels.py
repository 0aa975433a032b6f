"""Finds images that are mirrored at random though their class says which side is which.

The mistake has three parts: a random flip; classes that are mirror images of each other (a literal that lists ``left``
and ``right``, an angle of steering, digits or letters); and no label that changes with the flip.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from steadytrain.capture.looks.split_names import TARGETS, words
from steadytrain.capture.looks.syntax_trees import (
    Scope,
    draws,
    last_name,
    names_read,
    names_stored,
    number_of,
    scopes,
    statements,
    walk,
)

ACROSS, DOWN = "across", "down"
PAIRS = {
    ACROSS: (("left", "right"), ("west", "east"), ("rising", "falling"), ("forward", "backward"), ("b", "d")),
    DOWN: (("up", "down"), ("north", "south"), ("top", "bottom"), ("above", "below"), ("b", "p")),
}
TURNS = (("clockwise", "counterclockwise"), ("clockwise", "anticlockwise"), ("cw", "ccw"))
TRANSFORMS = {
    "RandomHorizontalFlip": ACROSS,
    "RandomVerticalFlip": DOWN,
    "HorizontalFlip": ACROSS,
    "VerticalFlip": DOWN,
}
FUNCTIONS = {"hflip": ACROSS, "horizontal_flip": ACROSS, "fliplr": ACROSS, "vflip": DOWN, "flipud": DOWN}
AXES: dict[float, str] = {-1: ACROSS, 3: ACROSS, -2: DOWN}
WRITTEN = re.compile(r"E?MNIST|KMNIST|QMNIST|SVHN|load_digits")
"""Data sets of digits and letters."""

STEERED = frozenset({"steer", "steers", "steering", "yaw", "curvature"})
LABELS = TARGETS | STEERED | frozenset({"lab", "cls", "tgt", "angle", "angles", "action", "direction", "heading"})
ONE_LABEL = LABELS - {"class", "classes"}
"""Without the list of all classes."""

TELLING = frozenset({"flip", "flipped", "mirror", "mirrored", "flag", "swap", "swapped"})
CHOICES = frozenset({"where", "get", "take", "gather", "index_select", "flip", "roll"})


def mirrored_labels(tree: ast.Module) -> Iterator[int]:
    """The line of the flip."""
    sides = _sides(tree)
    if not sides:
        return
    for scope in scopes(tree):
        nodes = statements(scope)
        for one in nodes:
            if isinstance(one, ast.Call) and TRANSFORMS.get(last_name(one.func)) in sides and not _is_certain(one):
                yield one.lineno
                return
        flips = [one for one in nodes if _axis(one) in sides]
        if flips and _is_drawn(scope, flips) and not _relabels(scope):
            assert isinstance(flips[0], ast.expr)
            yield flips[0].lineno
            return


# -- classes -----------------------------------------------------------------------------------------------------------


def _sides(tree: ast.Module) -> set[str]:
    """The axes along which a flip turns one class into another."""
    found: set[str] = set()
    for one in walk(tree):
        named = _names(one)
        if named:
            found |= {axis for axis, pairs in PAIRS.items() for pair in (*pairs, *TURNS) if _holds(named, pair)}
        if isinstance(one, (ast.Name, ast.Attribute)) and WRITTEN.fullmatch(last_name(one)):
            found |= {ACROSS, DOWN}
        if isinstance(one, ast.Name) and words(one) & STEERED:
            found.add(ACROSS)
    return found


def _names(node: ast.AST) -> list[set[str]]:
    """The words of each class in a literal that lists them, in an ``Enum``, or in ``LEFT, RIGHT = 0, 1``."""
    if isinstance(node, ast.Dict):
        listed: list[ast.expr] = [one for one in (*node.keys, *node.values) if one is not None]
    elif isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        listed = node.elts
    elif isinstance(node, ast.ClassDef) and any("Enum" in last_name(base) for base in node.bases):
        listed = [one.targets[0] for one in node.body if isinstance(one, ast.Assign)]
    else:
        return []
    return [
        words(one)
        for one in listed
        if (isinstance(one, ast.Constant) and isinstance(one.value, str))
        or (isinstance(one, ast.Name) and one.id.isupper())
    ]


def _holds(named: Sequence[set[str]], pair: tuple[str, str]) -> bool:
    """Whether two classes differ in nothing but the words of ``pair``."""
    one, other = pair
    return any(one in each and (each - {one}) | {other} in named for each in named)


# -- flips -------------------------------------------------------------------------------------------------------------


def _axis(node: ast.AST) -> str:
    """The axis of a flip, "" of what is none."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple) and len(node.slice.elts) > 1:
        turned = [_is_reversed(one) for one in node.slice.elts]
        return ACROSS if turned.count(True) == 1 and turned[-1] else ""
    if not isinstance(node, ast.Call):
        return ""
    name = last_name(node.func)
    if name in FUNCTIONS:
        return FUNCTIONS[name]
    if name != "flip" or not (node.args or node.keywords):
        return ""
    given = next((one.value for one in node.keywords if one.arg in ("dims", "axis")), None) or node.args[-1]
    numbers = [number_of(one) for one in (given.elts if isinstance(given, (ast.Tuple, ast.List)) else [given])]
    return AXES.get(numbers[0] or 0, "") if len(numbers) == 1 else ""


def _is_reversed(value: ast.expr) -> bool:
    return isinstance(value, ast.Slice) and value.lower is None and number_of(value.step) == -1


def _is_certain(call: ast.Call) -> bool:
    """Whether a flip is made always, or never: ``p=1.0`` of a flip at test time."""
    given = next((one.value for one in call.keywords if one.arg == "p"), call.args[0] if call.args else None)
    return isinstance(given, ast.Constant) and given.value in (0, 0.0, 1, 1.0)


def _is_drawn(scope: Scope, flips: Sequence[ast.AST]) -> bool:
    """Whether a draw decides over the flip: an ``if``, a conditional, ``torch.where``, or rows that a draw chose."""
    drawn = {
        name
        for one in statements(scope)
        if isinstance(one, ast.Assign) and draws(one.value)
        for target in one.targets
        for name in names_stored(target)
    }

    def decides(test: ast.AST) -> bool:
        return draws(test) or bool(names_read(test) & drawn)

    return any(
        any(map(decides, _deciding(one))) and any(each is flip for each in walk(one) for flip in flips)
        for one in statements(scope)
    )


def _deciding(node: ast.AST) -> list[ast.expr]:
    """What decides over a part of ``node``: a test, or the rows that are written."""
    if isinstance(node, (ast.If, ast.IfExp)):
        return [node.test]
    if isinstance(node, ast.Call):
        return node.args[:1] if last_name(node.func) == "where" else []
    targets = node.targets if isinstance(node, ast.Assign) else []
    return [target.slice for target in targets if isinstance(target, ast.Subscript)]


def _relabels(scope: Scope) -> bool:
    """Whether a label changes beside the flip, or whether an image was flipped leaves the function."""
    for one in statements(scope):
        targets = one.targets if isinstance(one, ast.Assign) else [one.target] if isinstance(one, ast.AugAssign) else []
        changed = isinstance(one, ast.AugAssign) or (isinstance(one, ast.Assign) and _is_changed(one.value))
        if changed and any(words(target) & LABELS for target in targets):
            return True
        if isinstance(one, ast.Return) and one.value is not None:
            parts = one.value.elts if isinstance(one.value, ast.Tuple) else []
            if any(words(part) & TELLING or _is_changed(part) for part in parts):
                return True
    return False


def _is_changed(value: ast.expr) -> bool:
    """Whether ``value`` is made of a label by its sign, by arithmetic, by a table of labels or by a choice."""
    return any(
        (isinstance(one, (ast.UnaryOp, ast.BinOp, ast.IfExp)) and bool(words(one) & ONE_LABEL))
        or (isinstance(one, ast.Subscript) and bool(words(one.slice) & ONE_LABEL))
        or (isinstance(one, ast.Call) and last_name(one.func) in CHOICES and bool(words(one) & ONE_LABEL))
        for one in walk(value)
    )
