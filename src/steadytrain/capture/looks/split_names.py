"""What the names in an expression say of the part of the data that it holds: rows to train on, or held-out ones."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from steadytrain.capture.looks.syntax_trees import last_name, walk

TRAINED = frozenset({"train", "trn", "tr", "training", "trainset"})
HELD_OUT = frozenset(
    {"test", "tst", "te", "testing", "testset", "val", "va", "valid", "valset", "validation", "dev", "eval"}
    | {"holdout", "heldout"}
)
TARGETS = frozenset({"y", "ys", "label", "labels", "target", "targets", "class", "classes"})
PARTS = re.compile(r"[._\W]+|(?<=[a-z])(?=[A-Z])|(?<=[a-zA-Z])(?=\d)")
OF_AXIS = re.compile(r"[xy](?=[a-z]{2})")
"""The first letter of ``xtest`` and ``ytrain``."""


def words(node: ast.AST) -> set[str]:
    """The words that variables, attributes and keys in ``node`` are made of."""
    return {part for name in _names(node) for part in _parts(name)}


def holds_trained(node: ast.AST) -> bool:
    """Whether ``node`` is named as rows to train on, and not as held-out ones."""
    said = words(node)
    return bool(said & TRAINED) and not said & HELD_OUT


def holds_held_out(node: ast.AST) -> bool:
    """Whether ``node`` is named as held-out rows, and not as those to train on."""
    said = words(node)
    return bool(said & HELD_OUT) and not said & TRAINED


def called_for_both_splits(tree: ast.Module, name: str) -> bool:
    """Whether ``name`` is called for what is trained on, and for held-out data, by the names of both."""
    trained = held_out = False
    for one in (each for each in walk(tree) if isinstance(each, ast.Assign)):
        for call in (each for each in walk(one.value) if isinstance(each, ast.Call) and last_name(each.func) == name):
            sides = (*one.targets, *call.args[:1])
            of = any(map(holds_trained, sides)), any(map(holds_held_out, sides))
            trained, held_out = trained or of == (True, False), held_out or of == (False, True)
    return trained and held_out


def _names(node: ast.AST) -> Iterator[str]:
    for one in walk(node):
        if isinstance(one, ast.Name):
            yield one.id
        elif isinstance(one, ast.Attribute):
            yield one.attr
        elif isinstance(one, ast.Constant) and isinstance(one.value, str):
            yield one.value


def _parts(name: str) -> Iterator[str]:
    for part in PARTS.split(name):
        low = part.lower()
        yield from (low[0], low[1:]) if OF_AXIS.match(low) and low[1:] in TRAINED | HELD_OUT else (low,)
