"""Finds the state of a recurrent layer that is carried from one batch to the next, although the batches are unrelated.

The mistake has three parts: a loop takes its batches from a shuffled loader, or draws them; a call in it takes a state
and returns it, or a module keeps it; and nothing in the loop makes the state anew.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from steadytrain.capture.looks.syntax_trees import (
    body_of,
    dotted,
    draws,
    given_values,
    last_name,
    names_read,
    names_stored,
    statements,
    walk,
)

RECURRENT = re.compile(r"\w*(LSTM|GRU|RNN|Cell|Recurrent)\w*")
STATE = re.compile(r"(?i)(.*_)?(h|hx|h_?n|h_?0|hc|hid|hiddens?|hidden_states?|states?|cell|memory|mem|carry|ctx)(_\w)?")
NO_STATE = re.compile(r"(?i)(.*_)?(opt\w*|optim\w*|ema|rng|train_?state|running|bn|buffer)s?_?.*")
MAKES = re.compile(r"(?i)(init|reset|clear|new|zeros?|fresh|begin)_?\w*(hid|state|mem|carry|rnn|_h\b)\w*|reset")
Loop = ast.For | ast.AsyncFor


def carried_states(tree: ast.Module) -> Iterator[int]:
    """The line of the call that takes the state of the batch before."""
    if not any(isinstance(one, ast.Call) and RECURRENT.fullmatch(last_name(one.func)) for one in walk(tree)):
        return
    shuffled = _shuffled(tree)
    drawing = {one.name for one in walk(tree) if isinstance(one, ast.FunctionDef) and any(map(draws, one.body))}
    drawing |= _orders(tree)
    kept = dict(_kept(tree))
    training = _training(tree) if kept else set()
    for loop in (one for one in walk(tree) if isinstance(one, (ast.For, ast.AsyncFor))):
        batch = _unrelated(loop, shuffled, drawing)
        nodes = body_of(loop)
        inner = [one for one in nodes if isinstance(one, (ast.For, ast.AsyncFor))]
        if not batch or any(_unrelated(one, shuffled, drawing) for one in inner):
            continue  # none, or the loop of the epochs
        yield from _carried(nodes, batch)
        if kept and _trains(nodes, training) and not _resets(nodes, set(kept)):
            yield from list(kept.values())[:1]


# -- batches that have nothing to do with each other -------------------------------------------------------------------


def _shuffled(tree: ast.Module) -> set[str]:
    """The names of loaders that shuffle, and of parameters that such a loader is passed to."""
    found: set[str] = set()
    for one in walk(tree):
        if isinstance(one, ast.Assign):
            found |= {last_name(name) for name, value in given_values(one) if _shuffles(value)}
    functions = {one.name: one for one in walk(tree) if isinstance(one, ast.FunctionDef)}
    made = {
        holder.name: one
        for holder in walk(tree)
        if isinstance(holder, ast.ClassDef)
        for one in holder.body
        if isinstance(one, ast.FunctionDef) and one.name == "__init__"
    }
    for call in (one for one in walk(tree) if isinstance(one, ast.Call)):
        function = functions.get(last_name(call.func)) or made.get(last_name(call.func))
        if function is not None:
            names = [one.arg for one in function.args.args if one.arg != "self"]
            given = [*zip(names, call.args, strict=False), *((one.arg, one.value) for one in call.keywords)]
            found |= {name for name, value in given if name and (_shuffles(value) or last_name(value) in found)}
    return found


def _shuffles(value: ast.expr) -> bool:
    return (
        isinstance(value, ast.Call)
        and last_name(value.func) == "DataLoader"
        and any(
            (one.arg == "shuffle" and getattr(one.value, "value", None) is True)
            or (one.arg == "sampler" and isinstance(one.value, ast.Call) and "Random" in last_name(one.value.func))
            for one in value.keywords
        )
    )


def _unrelated(loop: Loop, shuffled: set[str], drawing: set[str]) -> dict[str, int]:
    """The variables of a pass that hold rows of its own, of a shuffled loader or drawn, and the line from which on."""
    batch: dict[str, int] = {}
    if {last_name(one) for one in walk(loop.iter) if isinstance(one, (ast.Name, ast.Attribute))} & shuffled:
        batch = dict.fromkeys(names_stored(loop.target), loop.lineno)
    for one in (each for each in loop.body if isinstance(each, ast.Assign)):
        called = last_name(one.value.func) if isinstance(one.value, ast.Call) else ""
        taken = {name for each in walk(one.value) if isinstance(each, ast.Subscript) for name in names_read(each.slice)}
        if _draws_rows(one.value) or (taken | {called}) & drawing or names_read(one.value) & batch.keys():
            batch = {name: one.lineno for target in one.targets for name in names_stored(target)} | batch
    return batch


def _orders(tree: ast.Module) -> set[str]:
    """The variables that hold a random order of all rows."""
    return {
        name
        for one in walk(tree)
        if isinstance(one, ast.Assign) and isinstance(one.value, ast.Call)
        if last_name(one.value.func) in ("randperm", "permutation")
        for name in names_stored(one.targets[0])
    }


def _draws_rows(value: ast.expr) -> bool:
    return any(
        isinstance(one, ast.Call)
        and last_name(one.func) in ("randint", "randperm", "choice", "sample", "permutation")
        and one.args  # no draw of a distribution
        for one in walk(value)
    )


# -- the state ---------------------------------------------------------------------------------------------------------


def _carried(nodes: Sequence[ast.AST], batch: Mapping[str, int]) -> Iterator[int]:
    """Calls that take a state and return the next: ``out, h = model(x, h)``, where the loop does not make ``h``."""
    for one in nodes:
        if not (isinstance(one, ast.Assign) and isinstance(one.value, ast.Call)):
            continue
        if not any(
            batch.get(name, one.lineno) < one.lineno for each in one.value.args[:1] for name in names_read(each)
        ):
            continue
        given = {name for each in one.value.args[1:] for name in names_read(each)}
        given |= {name for each in one.value.keywords for name in names_read(each.value)}
        for name in names_stored(one.targets[0]) & given:
            if STATE.fullmatch(name) and not NO_STATE.fullmatch(name) and not _is_made(nodes, name, one):
                yield one.lineno


def _is_made(nodes: Sequence[ast.AST], name: str, call: ast.Assign) -> bool:
    """Whether the loop gives ``name`` another value than the returned state without its graph."""
    others = [one for one in nodes if isinstance(one, ast.Assign) and one is not call]
    return any(name in names_stored(one.targets[0]) and name not in names_read(one.value) for one in others)


def _kept(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """States that a module keeps: ``out, self.hidden = self.lstm(x, self.hidden)``, and the line."""
    for one in walk(tree):
        if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)) and one.name != "__init__":
            yield from _kept_in(statements(one))


def _kept_in(nodes: Sequence[ast.AST]) -> Iterator[tuple[str, int]]:
    derived: dict[str, set[str]] = {}
    for one in nodes:
        if not isinstance(one, ast.Assign):
            continue
        read = {dotted(each) for each in walk(one.value) if isinstance(each, (ast.Name, ast.Attribute))}
        read |= {name for each in list(read) for name in derived.get(each, ())}
        targets = one.targets[0].elts if isinstance(one.targets[0], ast.Tuple) else one.targets
        for target in targets:
            name = dotted(target)
            if name.startswith("self.") and name in read and STATE.fullmatch(last_name(target)):
                calls = any(isinstance(each, ast.Call) for each in walk(one.value))
                if calls and not NO_STATE.fullmatch(last_name(target)):
                    yield name.removeprefix("self."), one.lineno
            elif name:
                derived[name] = read


def _resets(nodes: Sequence[ast.AST], kept: set[str]) -> bool:
    """Whether the loop makes a kept state anew: ``model.reset_hidden()``, ``model.hidden = None``."""
    for one in nodes:
        if isinstance(one, ast.Call) and MAKES.fullmatch(last_name(one.func)):
            return True
        if isinstance(one, ast.Assign):
            names = {last_name(target) for target in one.targets}
            read = {last_name(each) for each in walk(one.value) if isinstance(each, ast.Attribute)}
            if names & kept and not names & read:
                return True
    return False


def _training(tree: ast.Module) -> set[str]:
    """The functions that make a backward pass."""
    return {one.name for one in walk(tree) if isinstance(one, ast.FunctionDef) and _has_backward(walk(one))}


def _trains(nodes: Sequence[ast.AST], training: set[str]) -> bool:
    """Whether a loop makes a backward pass, itself or in a function that it calls."""
    return _has_backward(nodes) or any(isinstance(one, ast.Call) and last_name(one.func) in training for one in nodes)


def _has_backward(nodes: Sequence[ast.AST]) -> bool:
    return any(isinstance(one, ast.Attribute) and one.attr == "backward" for one in nodes)
