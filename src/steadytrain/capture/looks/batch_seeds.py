"""Finds a constant seed in the function that puts batches together: each batch draws the same random numbers.

The mistake has three parts: a ``collate_fn`` of a loader that is not named as one of held-out data; a generator that it
seeds in each call by what no batch changes; and what it draws from it: rows, places or masks, or as many numbers as the
batch has rows. A projection or points of a size of their own may be meant.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from steadytrain.capture.looks.repeated_seeds import (
    Function,
    Functions,
    always,
    attributes_moved,
    called_function,
    functions_of,
    is_seed,
    names_changed,
    names_with_attributes,
)
from steadytrain.capture.looks.split_names import holds_held_out
from steadytrain.capture.looks.syntax_trees import DRAWN, body_of, dotted, last_name, names_read, names_stored, walk

CHOSEN = re.compile(
    r"randint|randperm|randrange|choices?|integers|permutation|permuted|sample|shuffle|bernoulli|multinomial|getrandbits"
)
"""Draws of rows, places and masks. Others count if there are as many as rows."""

ALSO_DRAWN = re.compile(r"(rand|randn|randint|normal|uniform)(_like|_)?|standard_normal|random_")
DEPTH_MAX = 2


def batch_seeds(tree: ast.Module) -> Iterator[int]:
    """The line of the seed."""
    functions, moved = functions_of(tree), attributes_moved(tree)
    found = {line for one in _collates(tree, functions) for line in _lines(one, _rows(one), moved, functions, 0)}
    yield from sorted(found)


def _lines(function: Function, rows: set[str], moved: set[str], functions: Functions, depth: int) -> Iterator[int]:
    """Lines of ``function`` with such a seed, and of the functions that it gives what holds the ``rows``."""
    derived = _derived(function, rows)
    changed = names_changed(function) | derived | moved
    nodes = [one for one in always(function.body) if not isinstance(one, ast.Lambda)]
    branches = {id(part) for one in nodes if isinstance(one, (ast.IfExp, ast.BoolOp)) for part in walk(one)}
    for one in nodes:
        if not isinstance(one, ast.Call) or id(one) in branches:
            continue
        read = {name for part in (*one.args, *one.keywords) for name in names_with_attributes(part)}
        if is_seed(one) and not read & changed and _is_drawn_from(_generator(one, nodes), function, derived):
            yield one.lineno
        called = called_function(one, functions) if depth < DEPTH_MAX and read & derived else None
        if called is not None and called is not function:
            given = [each.arg for each in called.args.args if each.arg not in ("self", "cls")]
            yield from _lines(called, set(given[: len(one.args)]), moved, functions, depth + 1)


def _generator(seed: ast.Call, nodes: list[ast.AST]) -> str | None:
    """The name of the generator that ``seed`` makes or seeds; "" for a global one, None if it has no name."""
    for one in nodes:
        if isinstance(one, ast.Assign) and any(part is seed for part in walk(one.value)):
            return dotted(one.targets[0]) or None
    holder = seed.func.value if isinstance(seed.func, ast.Attribute) else None
    if holder is None or dotted(holder) in (
        "torch",
        "random",
        "np.random",
        "numpy.random",
        "torch.random",
        "torch.cuda",
    ):
        return ""
    return dotted(holder) or None


def _is_drawn_from(generator: str | None, function: Function, derived: set[str]) -> bool:
    """Whether the function chooses by that generator, or draws as many numbers as there are rows."""
    for one in (each for each in walk(function) if isinstance(each, ast.Call) and _is_draw(each)):
        own = next((part.value for part in one.keywords if part.arg == "generator"), None)
        holder = dotted(one.func.value) if isinstance(one.func, ast.Attribute) else ""
        of = dotted(own) if own is not None else holder if generator else ""
        inline = own is not None and any(isinstance(part, ast.Call) and is_seed(part) for part in walk(own))
        if (inline or (generator is not None and of == generator)) and _concerns_rows(one, function, derived):
            return True
    return False


def _is_draw(call: ast.Call) -> bool:
    name = last_name(call.func)
    return any(kind.fullmatch(name) for kind in (DRAWN, CHOSEN, ALSO_DRAWN))


def _concerns_rows(draw: ast.Call, function: Function, derived: set[str]) -> bool:
    """Whether it chooses, or draws as many numbers as there are rows, or for each of them."""
    if CHOSEN.fullmatch(last_name(draw.func)) or names_read(draw) & derived:
        return True
    for one in walk(function):
        if isinstance(one, ast.For):
            inside = names_read(one.iter) & derived and draw in body_of(one)
        else:
            loops = isinstance(one, (ast.ListComp, ast.GeneratorExp)) and names_read(one.generators[0].iter) & derived
            inside = loops and isinstance(one, (ast.ListComp, ast.GeneratorExp)) and draw in walk(one.elt)
        if inside:
            return True
    return False


def _derived(function: Function, rows: set[str]) -> set[str]:
    """``rows`` and the variables that are made of them."""
    derived = set(rows)
    for one in always(function.body):
        if isinstance(one, ast.Assign) and names_read(one.value) & derived:
            derived |= {name for target in one.targets for name in names_stored(target)}
    for loop in (one for one in walk(function) if isinstance(one, (ast.For, ast.comprehension))):
        derived |= names_stored(loop.target) if names_read(loop.iter) & derived else set()
    return derived


def _collates(tree: ast.Module, functions: Functions) -> Iterator[Function]:
    """The functions that put the batches of loaders together, without those of held-out data."""
    held_out = {
        id(call)
        for one in walk(tree)
        if isinstance(one, (ast.Assign, ast.Return, ast.For, ast.comprehension)) and _is_held_out(one)
        for call in walk(one.iter if isinstance(one, (ast.For, ast.comprehension)) else one)
    }
    made = {
        target.id: one.value
        for one in walk(tree)
        if isinstance(one, ast.Assign)
        for target in one.targets
        if isinstance(target, ast.Name)
    }
    for call in (one for one in walk(tree) if isinstance(one, ast.Call) and id(one) not in held_out):
        given = {one.arg: one.value for one in call.keywords}
        if "collate_fn" in given and not any(holds_held_out(one) for one in call.args):
            found = _function(given["collate_fn"], tree, functions, made)
            if found is not None:
                yield found


def _is_held_out(node: ast.AST) -> bool:
    if isinstance(node, ast.Assign):
        return any(holds_held_out(target) for target in node.targets)
    if isinstance(node, (ast.For, ast.comprehension)):
        return holds_held_out(node.target) or holds_held_out(node.iter)
    return holds_held_out(node)


def _function(given: ast.expr, tree: ast.Module, functions: Functions, made: Mapping[str, ast.expr]) -> Function | None:
    """The function that ``collate_fn=given`` calls: named, a method, ``partial`` of one, or an object with a call."""
    if isinstance(given, ast.Name) and given.id in made:
        given = made[given.id]
    if isinstance(given, ast.Lambda) and isinstance(given.body, ast.Call):
        given = given.body.func
    if isinstance(given, ast.Call):
        name = last_name(given.func)
        if name == "partial" and given.args:
            return _function(given.args[0], tree, functions, {})
        kind = next((one for one in walk(tree) if isinstance(one, ast.ClassDef) and one.name == name), None)
        methods = kind.body if kind is not None else []
        return next((one for one in methods if isinstance(one, ast.FunctionDef) and one.name == "__call__"), None)
    return functions.get(last_name(given)) or functions.get(f".{last_name(given)}")


def _rows(collate: Function) -> set[str]:
    """The argument that holds the rows; others have a default, or one value for all batches."""
    return set([one.arg for one in collate.args.args if one.arg not in ("self", "cls")][:1])
