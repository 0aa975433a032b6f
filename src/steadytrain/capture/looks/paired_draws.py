"""Finds a random transform that is applied to an image and to its mask by separate draws, or to the image alone.

The mistake has four parts: one function is called twice in the same scope, on two different things, one of which is
named as a dense target; and each call draws anew, inside the function or among its other arguments. Two views of one
image, two images of a pair, and draws that are repeated from a seed are none. Boxes and points are moved by arithmetic:
any of it counts.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from steadytrain.capture.looks.syntax_trees import (
    DRAWN,
    Scope,
    assignments,
    dotted,
    draws,
    last_name,
    names_read,
    names_stored,
    scopes,
    statements,
    walk,
)

TARGET = re.compile(
    r"(?i)(.*_)?(masks?|seg\w*|labels?|targets?|gt|ground_?truth|depths?|annot\w*|heat_?maps?)(_.*|\d*)"
)
SEEDED = re.compile(r"manual_seed\w*|seed|set_rng_state|setstate|set_state|fork_rng")
MOVES = re.compile(r"(?i).*(flip|crop|rot|affine|warp|roll|shift|elastic|perspective|transpose).*")
"""What moves values to other places; a change of brightness may well differ."""

COIN_LINES_MAX = 2

IMAGE = re.compile(r"(?i)(.*_)?(x|ims?|imgs?|images?|pics?|pictures?|frames?|photos?|scans?|slices?|inputs?)(_.*|\d*)")
DENSE = re.compile(r"(?i)(.*_)?(masks?|seg\w*|gt|ground_?truth|depths?|heat_?maps?)(_.*|\d*)")
TARGET_OF_ALL = re.compile(r"(?i)(.*_)?(y|targets?|labels?|lbls?)\d*")
"""What is a mask where the source is about masks, and a class or a number elsewhere."""

OF_MASKS = re.compile(r"(?i)unet\w*|.*segment.*|.*dice.*|.*(^|_)m?iou|.*jaccard.*")
TURNS = re.compile(r"(?i).*(flip|crop|rot|affine|warp|elastic|perspective).*")
"""What moves an image alone: more is meant with a tensor than with an image and its mask."""

PLACES = re.compile(
    r"(?i)(.*_)?(box|boxes|b?box|bboxe?s?|key_?points?|kpts|pts|points?|coords?|landmarks?|joints)(_.*|\d*)"
)
CONVERTS = re.compile(
    r"(as_?)?(tensor|array)|from_numpy|float|to|astype|copy|clone|list|len|print|append|BoundingBoxes"
)
"""What leaves boxes and points where they are."""


def separate_draws(tree: ast.Module) -> Iterator[int]:
    """The line of the second call."""
    drawing, coins = _drawing(tree), _coins(tree)
    for scope in scopes(tree):
        yield from _in_scope(scope, drawing, coins)
        yield from _in_branches(scope)


@dataclass(frozen=True)
class _Call:
    """A call that draws: what it is given, and where the drawn variables among its other arguments were drawn."""

    given: str
    drawn_at: dict[str, int]
    draws: frozenset[str] = frozenset()
    """Other arguments that hold what a call gave, such as the draw itself: ``how`` after ``how = flip.draw()``."""


def _in_scope(scope: Scope, drawing: set[str], coins: set[str]) -> Iterator[int]:
    drawn_at: dict[str, int] = {}
    first: dict[str, _Call] = {}
    made: set[str] = set()
    for node in statements(scope):
        if isinstance(node, ast.Assign):
            names = {name for target in node.targets for name in names_stored(target)}
            made = made | names if isinstance(node.value, ast.Call) else made - names
        if isinstance(node, ast.Assign) and _is_draw(node.value, coins):
            drawn_at |= {name: node.lineno for target in node.targets for name in names_stored(target)}
        if not isinstance(node, ast.Call):
            continue
        if SEEDED.fullmatch(last_name(node.func)):
            first.clear()
            continue
        name, given, others = dotted(node.func), node.args[0] if node.args else None, node.args[1:]
        if not name or given is None or not _root(given):
            continue
        inside = last_name(node.func) in drawing or any(_is_draw(one, coins) for one in others)
        passed = {last_name(one) for one in others}
        call = _Call(_root(given), {one: drawn_at[one] for one in passed if one in drawn_at}, frozenset(passed & made))
        if not inside and not call.drawn_at:
            continue
        before = first.setdefault(name, call)
        by_one = bool(before.draws & call.draws)
        if _are_pair(before.given, call.given) and ((inside and not by_one) or before.drawn_at != call.drawn_at):
            yield node.lineno


def _in_branches(scope: Scope) -> Iterator[int]:
    """``if random() < 0.5: image = flip(image)``, and the same again for the mask."""
    before: set[str] = set()
    for node in statements(scope):
        if isinstance(node, ast.If) and draws(node.test):
            names = {name for one in node.body if isinstance(one, ast.Assign) for name in _moved(one)}
            if any(_are_pair(one, other) for one in names for other in names):
                continue  # both by one draw
            if any(_are_pair(one, other) for one in before for other in names):
                yield node.lineno
            before |= names


def moved_alone(tree: ast.Module) -> Iterator[int]:
    """The line where an image is moved at random whose mask, which is returned beside it, is moved nowhere."""
    helpers = _turning_helpers(tree)
    dense = (DENSE, TARGET_OF_ALL) if any(map(_is_of_masks, walk(tree))) else (DENSE,)
    for scope in scopes(tree):
        nodes = list(statements(scope))
        returned = {root for one in nodes if isinstance(one, ast.Return) for root in _returned(one)}
        masks = {root for root in returned if any(one.fullmatch(root) for one in dense)}
        if not masks:
            continue
        turned = [
            _Turn(one.lineno, frozenset({_root(one)}.union(*map(_roots, one.args))), False)
            for one in nodes
            if isinstance(one, ast.Call) and (TURNS.fullmatch(last_name(one.func)) or last_name(one.func) in helpers)
        ]
        turned += _turned_around(nodes)
        given = {root for one in turned for root in one.given}
        images = {root for root in returned & given if IMAGE.fullmatch(root)}
        if not images or masks & given or not any(draws(one) for one in nodes):
            continue
        yield next(one.line for one in turned if one.given & images)
        return


def places_alone(tree: ast.Module) -> Iterator[int]:
    """The line where an image is moved at random whose boxes or points, which are returned beside it, are not."""
    drawing = _drawing(tree)
    for scope in scopes(tree):
        nodes = list(statements(scope))
        held = {name: one.value for one in nodes if isinstance(one, ast.Assign) for name in _names_of(one.targets)}
        returned = [root for one in nodes if isinstance(one, ast.Return) for root in _all_returned(one, held)]
        places = set(filter(PLACES.fullmatch, returned))
        places |= {_root(made.args[0]) for one in places if _converts(made := held.get(one))}
        images = set(filter(IMAGE.fullmatch, returned))
        turned = [one for one in _turning(nodes, drawing) if {*one.given} & images]
        drawn = any(draws(one) for one in nodes) or any(one.draws for one in turned)
        if places and turned and drawn and not any(_moves_places(one, places, turned[0].line) for one in nodes):
            yield turned[0].line
            return


def _is_of_masks(node: ast.AST) -> bool:
    """Whether ``node`` defines a network or a measure of masks."""
    return isinstance(node, (ast.ClassDef, ast.FunctionDef)) and OF_MASKS.fullmatch(node.name) is not None


def _roots(value: ast.expr) -> set[str]:
    """The root of an argument, or the names in what is computed there: ``x`` in ``flip(x * gain)``."""
    root = _root(value)
    return {root} if root or not isinstance(value, ast.BinOp) else names_read(value)


def _turning_helpers(tree: ast.Module) -> set[str]:
    """Functions of the source that move the one thing that they return, as their arguments say."""
    return {
        one.name
        for one in walk(tree)
        if isinstance(one, ast.FunctionDef)
        and not any(draws(each) for each in walk(one))
        and any(isinstance(each, ast.Call) and TURNS.fullmatch(last_name(each.func)) for each in walk(one))
        and not any(isinstance(each, ast.Return) and isinstance(each.value, ast.Tuple) for each in walk(one))
    }


@dataclass(frozen=True)
class _Turn:
    """A call that moves: its line, what it is given or assigned to, and whether it draws by itself."""

    line: int
    given: frozenset[str]
    draws: bool


def _turning(nodes: Sequence[ast.AST], drawing: set[str]) -> Iterator[_Turn]:
    """The calls that move what they are given, by their name or as objects that draw."""
    for node in nodes:
        targets = node.targets if isinstance(node, ast.Assign) else []
        value = node.value if isinstance(node, (ast.Assign, ast.Return, ast.Expr)) else None
        for call in walk(value) if value is not None else ():
            if isinstance(call, ast.Call) and (
                TURNS.fullmatch(last_name(call.func)) or last_name(call.func) in drawing
            ):
                given = {_root(call), *map(_root, call.args), *map(_root, targets)}
                yield _Turn(call.lineno, frozenset(given), last_name(call.func) in drawing)
    yield from _turned_around(nodes)


def _turned_around(nodes: Sequence[ast.AST]) -> Iterator[_Turn]:
    """``if random() < 0.5: image = image[:, ::-1]``. Without a draw the channels may be meant."""
    chances = {
        name for one in nodes if isinstance(one, ast.Assign) and draws(one.value) for name in _names_of(one.targets)
    }
    for node in nodes:
        if isinstance(node, ast.If) and (draws(node.test) or names_read(node.test) & chances):
            for one in (each for each in node.body if isinstance(each, ast.Assign)):
                if any(map(_is_backward, walk(one.value))):
                    yield _Turn(one.lineno, frozenset({_root(one.value), *map(_root, one.targets)}), False)


def _is_backward(node: ast.AST) -> bool:
    """``::-1``."""
    step = node.step if isinstance(node, ast.Slice) else None
    return step is not None and ast.unparse(step) == "-1"


def _names_of(targets: Sequence[ast.expr]) -> list[str]:
    return [one.id for one in targets if isinstance(one, ast.Name)]


def _all_returned(node: ast.Return, held: dict[str, ast.expr]) -> Iterator[str]:
    """The roots of what is returned, and of the values of mappings among it."""
    for one in (*getattr(node.value, "elts", ()), *getattr(node.value, "values", ())):
        inner = held.get(_root(one), one) if isinstance(one, ast.Name) else one
        yield from (
            root
            for each in (one, *getattr(inner, "values", ()))
            if isinstance(each, ast.expr) and (root := _root(each))
        )


def _converts(value: ast.expr | None) -> TypeGuard[ast.Call]:
    """Whether a value is another form of what a call is given: numbers in a list may be other ones."""
    plain = isinstance(value, ast.Call) and all(
        isinstance(one, (ast.Name, ast.Attribute, ast.Subscript)) for one in value.args[:1]
    )
    return (
        isinstance(value, ast.Call)
        and plain
        and bool(value.args)
        and CONVERTS.fullmatch(last_name(value.func)) is not None
    )


def _moves_places(node: ast.AST, places: set[str], turned: int) -> bool:
    """Whether boxes are changed in place, computed from themselves or after ``turned``, or given to a call that may."""
    if isinstance(node, (ast.Assign, ast.AugAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        flat = [each for one in targets for each in (one.elts if isinstance(one, (ast.Tuple, ast.List)) else [one])]
        stored = [one for one in flat if _root(one) in places]
        of_itself = bool({name for name in places if name in names_read(node.value)})
        in_place = isinstance(node, ast.AugAssign) or any(isinstance(one, ast.Subscript) for one in stored)
        return bool(stored) and (in_place or (not _converts(node.value) and (of_itself or node.lineno >= turned)))
    if isinstance(node, ast.For):
        return _root(node.iter) in places or bool(names_read(node.iter) & places)
    if not isinstance(node, ast.Call) or CONVERTS.fullmatch(last_name(node.func)):
        return False
    given = [*node.args, *(one.value for one in node.keywords)]
    return any(_root(one) in places for one in given if not isinstance(one, (ast.Dict, ast.Call)))


def _returned(node: ast.Return) -> Iterator[str]:
    """The roots of what a tuple, or a mapping, returns."""
    values = node.value.elts if isinstance(node.value, ast.Tuple) else []
    values = node.value.values if isinstance(node.value, ast.Dict) else values
    yield from (root for one in values if (root := _root(one)))


def _moved(assigned: ast.Assign) -> Iterator[str]:
    """Variables that are replaced by what a call that moves makes of them."""
    for target in assigned.targets:
        names, values = (one.elts if isinstance(one, ast.Tuple) else [one] for one in (target, assigned.value))
        for name, value in zip(names, values, strict=False):
            if isinstance(value, ast.Call) and MOVES.fullmatch(last_name(value.func)) and _root(value) == _root(name):
                yield _root(name)


def _drawing(tree: ast.Module) -> set[str]:
    """Functions, classes and variables of the module, and arguments given by name, that draw where they are called and
    move what they are given.
    """
    nodes = list(walk(tree))
    made = list(assignments(nodes))
    given = [(one.arg, one.value) for one in nodes if isinstance(one, ast.keyword) and one.arg]
    given += _given_by_place(nodes)
    movers = {one.name: names for one in nodes if _is_called(one) and any(map(MOVES.fullmatch, names := _calls(one)))}
    found: set[str] = set()
    for _ in range(3):  # what draws by calling what draws
        found |= {name for name, calls in movers.items() if calls & found or any(map(DRAWN.fullmatch, calls))}
        found |= {last_name(target) for target, value in made if _makes_any(value, found)}
        found |= {name for name, value in given if _makes_any(value, found)}
    return found - {""}


def _given_by_place(nodes: Sequence[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    """The parameters of the module's functions and classes, with what calls give them by their place."""
    parameters = {one.name: _parameters(one) for one in nodes if isinstance(one, (ast.FunctionDef, ast.ClassDef))}
    for node in nodes:
        if isinstance(node, ast.Call) and (names := parameters.get(last_name(node.func))):
            yield from zip(names, node.args, strict=False)


def _parameters(node: ast.FunctionDef | ast.ClassDef) -> list[str]:
    """The names of a function's parameters, or of those that a class is made with, without ``self``."""
    if isinstance(node, ast.ClassDef):
        made = (one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__")
        return next((_parameters(one) for one in made), [])
    names = [one.arg for one in node.args.args]
    return names[1:] if names[:1] == ["self"] else names


def _is_called(node: ast.AST) -> TypeGuard[ast.FunctionDef | ast.ClassDef]:
    """A function, or a class whose objects are called."""
    if isinstance(node, ast.ClassDef):
        return any(isinstance(one, ast.FunctionDef) and one.name in ("__call__", "forward") for one in node.body)
    return isinstance(node, ast.FunctionDef) and not node.name.startswith("__")


def _calls(node: ast.FunctionDef | ast.ClassDef) -> set[str]:
    """The names of a function or class and of all that it calls."""
    return {node.name, *(last_name(one.func) for one in walk(node) if isinstance(one, ast.Call))}


def _coins(tree: ast.Module) -> set[str]:
    """Short functions that return what they draw."""
    functions = [one for one in walk(tree) if isinstance(one, ast.FunctionDef) and len(one.body) <= COIN_LINES_MAX]
    return {one.name for one in functions if draws(one) and any(isinstance(last, ast.Return) for last in one.body[-1:])}


def _makes_any(value: ast.expr, names: set[str]) -> bool:
    """Whether ``value`` is an object of a class that draws, a chain of such, or one of torchvision's; or may be."""
    if isinstance(value, ast.Name):
        return value.id in names
    if isinstance(value, ast.IfExp):
        return _makes_any(value.body, names) or _makes_any(value.orelse, names)
    if not isinstance(value, ast.Call):
        return False
    name = last_name(value.func)
    if name in ("Compose", "Sequential"):
        return any(_makes_any(one, names) for one in walk(value) if one is not value and isinstance(one, ast.Call))
    return (name in names and name[:1].isupper()) or (name.startswith("Random") and MOVES.fullmatch(name) is not None)


def _calls_any(node: ast.AST, names: set[str]) -> bool:
    return any(isinstance(one, ast.Call) and last_name(one.func) in names for one in walk(node))


def _is_draw(value: ast.AST, coins: set[str]) -> bool:
    """Whether an expression draws by itself or through a short function of the module, as ``coin(n)``."""
    return draws(value) or _calls_any(value, coins)


def _are_pair(one: str, other: str) -> bool:
    """Whether one of two different things is named as a dense target."""
    return one != other and (TARGET.fullmatch(one) is None) != (TARGET.fullmatch(other) is None)


def _root(node: ast.expr) -> str:
    """``masks`` of ``self.masks[i]``, of ``masks.copy()`` and of ``as_tensor(masks)``; "" if there is none."""
    if isinstance(node, ast.Subscript):
        return _root(node.value)
    if isinstance(node, ast.Call):
        given = _root(node.args[0]) if node.args else ""
        return given or (_root(node.func.value) if isinstance(node.func, ast.Attribute) else "")
    return last_name(node)
