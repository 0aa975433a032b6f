"""Finds a constant seed that is set in every step of the loop that trains.

The mistake has three parts: a loop that calls ``backward``, itself or through functions of the module; a seed that is
set in it, or in a function that it calls, outside of any branch; and an argument that nothing in the loop changes. A
loop around the training loop (one seed for each trial or epoch) is none, and neither is what an evaluation or a sample
of pictures does.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from steadytrain.capture.looks.syntax_trees import dotted, draws, last_name, names_read, names_stored, statements, walk

SEEDS = frozenset({"manual_seed", "set_seed", "seed_everything", "manual_seed_all"})
BY_ITSELF = frozenset({"RandomState", "default_rng", "Random"})
NO_TRAINING = re.compile(r"(?i).*(eval|valid|test|sampl|plot|preview|visual|generate|demo|log|__init__|main|worker).*")
DEPTH_MAX = 3
KEPT = "functions_of_steadytrain"

Function = ast.FunctionDef | ast.AsyncFunctionDef


def repeated_seeds(tree: ast.Module) -> Iterator[int]:
    """The line of the seed."""
    if not any(isinstance(one, ast.Call) and is_seed(one) for one in walk(tree)):
        return
    functions, moved = functions_of(tree), attributes_moved(tree)
    seen: set[int] = set()
    for loop in (one for one in walk(tree) if isinstance(one, (ast.For, ast.AsyncFor, ast.While))):
        if not trains(loop, functions) or _is_outer(loop, loop, functions, 0):
            continue
        for line in _seeds(loop.body, names_changed(loop) | moved, functions, 0):
            if line not in seen:
                seen.add(line)
                yield line


class Functions(dict[str, Function]):
    """The functions of a module as they are called: by their name, or as ``.name`` if they are methods.

    ``training`` are those in which a backward runs, or in a function that they call, by id.
    """

    training: frozenset[int] = frozenset()


def functions_of(tree: ast.Module) -> Functions:
    """Those of ``tree``, which keeps them: several rules ask."""
    known = getattr(tree, KEPT, None)
    if isinstance(known, Functions):
        return known
    found, plain = Functions(), []
    for node in walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            plain.append(node)
        inside = node.body if isinstance(node, ast.ClassDef) else []
        found |= {f".{one.name}": one for one in inside if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))}
    methods = set(map(id, found.values()))
    found |= {one.name: one for one in plain if id(one) not in methods}
    calls = {id(one): [each for each in walk(one) if isinstance(each, ast.Call)] for one in found.values()}
    training = {key for key, made in calls.items() if any(last_name(one.func) == "backward" for one in made)}
    called = {key: {id(one) for each in made if (one := called_function(each, found))} for key, made in calls.items()}
    for _ in range(DEPTH_MAX):
        training |= {key for key, others in called.items() if others & training}
    found.training = frozenset(training)
    setattr(tree, KEPT, found)
    return found


def called_function(call: ast.AST, functions: Mapping[str, Function]) -> Function | None:
    """The function of the module that ``call`` calls; None if it calls another one."""
    if not isinstance(call, ast.Call):
        return None
    name = last_name(call.func)
    return functions.get(f".{name}" if isinstance(call.func, ast.Attribute) else name)


def trains(node: ast.AST, functions: Functions) -> bool:
    """Whether a backward runs in ``node``, or in a function of the module that it calls."""
    for one in walk(node):
        if isinstance(one, ast.Call) and last_name(one.func) == "backward":
            return True
        called = called_function(one, functions)
        if called is not None and id(called) in functions.training:
            return True
    return False


def _is_outer(node: ast.AST, loop: ast.AST, functions: Functions, depth: int) -> bool:
    """Whether a loop inside of ``node``, or in a function that it calls, trains: ``loop`` is one over trainings."""
    for one in walk(node):
        if isinstance(one, (ast.For, ast.While)) and one is not loop and trains(one, functions):
            return True
        called = called_function(one, functions) if depth < DEPTH_MAX else None
        if called is not None and called is not node and _is_outer(called, loop, functions, depth + 1):
            return True
    return False


def attributes_moved(tree: ast.Module) -> set[str]:
    """The attributes that a method other than ``__init__`` assigns, as ``.name``: a step that is counted."""
    functions = (one for one in walk(tree) if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)))
    return {name for one in functions if one.name != "__init__" for name in names_changed(one) if name.startswith(".")}


def _is_of_one_draw(seed: ast.Call, body: list[ast.stmt]) -> bool:
    """Whether a generator is made as an argument of one draw, beside others without it: a constant of the task."""
    calls = [one for each in body for one in walk(each) if isinstance(one, ast.Call) and draws(one)]
    holders = [one for one in calls if any(seed is each for each in walk(one))]
    return bool(holders) and len(calls) > len(holders)


def _seeds(body: list[ast.stmt], stored: set[str], functions: Functions, depth: int) -> Iterator[int]:
    """Lines of ``body`` that set a constant seed in each pass, and of the functions that it calls."""
    moved = {one for one in stored if one.startswith(".")}
    for node in always(body):
        if not isinstance(node, ast.Call):
            continue
        name = last_name(node.func)
        changes = any(names_with_attributes(one) & stored for one in (*node.args, *node.keywords))
        if is_seed(node) and not changes and not _is_of_one_draw(node, body):
            yield node.lineno
        called = called_function(node, functions)
        if called is None or depth >= DEPTH_MAX or NO_TRAINING.fullmatch(name) or name in SEEDS:
            continue
        given = {one.arg for one in (*called.args.args, *called.args.kwonlyargs)} - {"self"}
        if any(draws(one) or trains(one, functions) for one in called.body):
            yield from _seeds(called.body, names_changed(called) | given | moved, functions, depth + 1)


def names_changed(node: ast.AST) -> set[str]:
    """The variables that are assigned in ``node``, and the attributes as ``.name``."""
    attributes = (one for one in walk(node) if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store))
    return names_stored(node) | {f".{one.attr}" for one in attributes}


def names_with_attributes(node: ast.AST) -> set[str]:
    """The variables that ``node`` reads, and its attributes as ``.name``."""
    return names_read(node) | {f".{one.attr}" for one in walk(node) if isinstance(one, ast.Attribute)}


def is_seed(call: ast.Call) -> bool:
    """``manual_seed(0)`` of torch or of a generator, ``np.random.seed(0)``, ``np.random.default_rng(0)``,
    ``random.Random(0)``."""
    name = last_name(call.func)
    if name in BY_ITSELF:
        return bool(call.args) and not (isinstance(call.args[0], ast.Constant) and call.args[0].value is None)
    known = name in SEEDS or dotted(call.func).endswith("random.seed")
    return known and (bool(call.args) or bool(call.keywords))


def always(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """All nodes of ``body`` but those of branches, handlers and functions inside."""
    for statement in body:
        if isinstance(statement, (ast.If, ast.Try, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        if isinstance(statement, (ast.For, ast.While, ast.With)):
            yield from always(statement.body)
            continue
        yield statement
        yield from statements(statement)
