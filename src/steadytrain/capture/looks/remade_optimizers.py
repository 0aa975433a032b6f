"""Finds an optimizer that is made anew for each step, or for each epoch, of one training.

Asked for are a class that keeps moments, a loop that trains with it, and settings that nothing in the loop changes. The
model must be that of the pass before: a loop that makes or loads it, over folds, clients, tasks or stages, is none.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from steadytrain.capture.looks.repeated_seeds import Functions, always, called_function, functions_of, trains
from steadytrain.capture.looks.syntax_trees import dotted, last_name, names_read, names_stored, walk

KEEPS_MOMENTS = re.compile(r"(Fused|Sparse|N|R)?Adam[WX]?|Adamax|RMSprop|Lion|LAMB|Adafactor|RAdam|NAdam|SGD")
EPOCH = re.compile(r"(?i)(.*_)?(n_?)?(epochs?|ep)(_.*)?")
OTHERS = re.compile(
    r"(?i).*(fold|client|round|task|stage|phase|trial|seed|run|config|cv|domain|cycle|meta|inner|inside|adapt|fine|layer"
    r"|search|probe|attack|invert|fit_|load|reset|init|build|make|create|reload|deepcopy|member|agent|candidate|fewshot).*"
)
LOADS = re.compile(r"(?i)load_state_dict|deepcopy|reset_parameters|apply|load_\w+|copy_|set_weights|from_pretrained")

Function = ast.FunctionDef | ast.AsyncFunctionDef
Loop = ast.For | ast.AsyncFor | ast.While


def in_each_step(tree: ast.Module) -> Iterator[int]:
    """The line of an optimizer that is made in each step."""
    yield from _made(tree, of_epochs=False)


def in_each_epoch(tree: ast.Module) -> Iterator[int]:
    """The line of an optimizer that is made in each epoch."""
    of_steps = set(in_each_step(tree))
    yield from (one for one in _made(tree, of_epochs=True) if one not in of_steps)


def _made(tree: ast.Module, *, of_epochs: bool) -> Iterator[int]:
    if not any(_keeps_moments(one) for one in walk(tree)):
        return
    functions = functions_of(tree)
    seen: set[int] = set()
    for loop in (one for one in walk(tree) if isinstance(one, (ast.For, ast.AsyncFor, ast.While))):
        counts = not of_epochs or _counts_epochs(loop)
        lines = [one for one in _lines(loop, functions) if one not in seen] if counts else []
        if lines and trains(loop, functions) and _trains_in_loop(loop, functions) is of_epochs:
            seen.update(lines)
            yield from lines


def _lines(loop: Loop, functions: Functions) -> Iterator[int]:
    """Optimizers that the body of ``loop`` makes, itself or in a function that it calls and that trains with it."""
    target = names_stored(loop.target) if isinstance(loop, (ast.For, ast.AsyncFor)) else set()
    if any(OTHERS.fullmatch(name) for name in target) or _loads(loop):
        return
    yield from _in_body(loop.body, names_stored(loop))
    for node in always(loop.body):
        called = called_function(node, functions)
        if called is None or OTHERS.fullmatch(called.name) or _loads(called):
            continue
        given = names_read(node) & names_stored(loop)
        if any(OTHERS.fullmatch(one) or "model" in one or "net" in one for one in given):
            continue
        lines = list(_in_body(called.body, names_stored(called)))
        if lines and any(trains(one, functions) for one in called.body):
            yield from lines


def _in_body(body: list[ast.stmt], stored: set[str]) -> Iterator[int]:
    for node in always(body):
        if not isinstance(node, ast.Call) or not _keeps_moments(node):
            continue
        settings = {one.arg: one.value for one in node.keywords}
        held = [dotted(one.func) for one in walk(node.args[0]) if isinstance(one, ast.Call)]
        of_model = any(one.endswith(".parameters") for one in held)
        if of_model and not any(names_read(one) & stored for one in (*node.args, *settings.values())):
            yield node.lineno


def _keeps_moments(node: ast.AST) -> bool:
    """Whether a call makes an optimizer that keeps moments."""
    name = last_name(node.func) if isinstance(node, ast.Call) else ""
    if not isinstance(node, ast.Call) or not node.args or not KEEPS_MOMENTS.fullmatch(name):
        return False
    given = next((one.value for one in node.keywords if one.arg == "momentum"), None)
    return name != "SGD" or (given is not None and not (isinstance(given, ast.Constant) and not given.value))


def _trains_in_loop(loop: Loop, functions: Functions) -> bool:
    """Whether a loop inside of ``loop``, or of a function that it calls, trains."""
    places: list[ast.AST] = [loop]
    for node in walk(loop):
        called = called_function(node, functions)
        if called is not None:
            places.append(called)
    inner = (one for place in places for one in walk(place) if isinstance(one, (ast.For, ast.While)))
    return any(one is not loop and trains(one, functions) for one in inner)


def _counts_epochs(loop: Loop) -> bool:
    names = names_stored(loop.target) if isinstance(loop, (ast.For, ast.AsyncFor)) else names_read(loop.test)
    bound = names_read(loop.iter) if isinstance(loop, (ast.For, ast.AsyncFor)) else set()
    return any(EPOCH.fullmatch(one) for one in names | bound)


def _loads(node: ast.AST) -> bool:
    calls = (one for one in walk(node) if isinstance(one, ast.Call))
    return any(LOADS.fullmatch(last_name(one.func)) for one in calls)
