"""Finds inputs and targets that are split by two draws, and paired again row by row.

The mistake has three parts in one scope: two calls of ``train_test_split``, of one variable each; no seed that both
have, and none set before each; and a pair of their results.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from steadytrain.capture.looks.syntax_trees import Scope, dotted, last_name, names_read, scopes, statements

SEEDS = frozenset({"seed", "set_seed", "seed_everything"})
PAIRS = re.compile(r"(?i)zip|\w*dataset|\w*loader|fit|train\w*|from_tensor_slices")
TARGET = re.compile(r"(?i)([xyi]_?)?(.*_)?(ys?|labels?|targets?|masks?|classes|tags|gts?|lbls?)(_.*|\d*)")
PARTS = 2


@dataclass(frozen=True)
class _Split:
    rows: str
    seed: str
    results: tuple[str, ...]
    line: int


def separate_splits(tree: ast.Module) -> Iterator[int]:
    """The line of the second call."""
    for scope in scopes(tree):
        splits = _splits(scope)
        for later, earlier in ((b, a) for i, b in enumerate(splits) for a in splits[:i]):
            alike = later.seed and later.seed == earlier.seed
            chained = later.rows in earlier.results or later.rows == earlier.rows
            one_target = (TARGET.fullmatch(later.rows) is None) != (TARGET.fullmatch(earlier.rows) is None)
            if alike or chained or not one_target:
                continue
            pairs = set(zip(earlier.results, later.results, strict=False))
            if any(_pairs(node, pairs) for node in statements(scope)):
                yield later.line
                return


def _splits(scope: Scope) -> list[_Split]:
    """The calls of one variable; a seed that is set before a call counts as its own."""
    found: list[_Split] = []
    seeded = ""
    for node in statements(scope):
        if isinstance(node, ast.Call) and last_name(node.func) in SEEDS:
            seeded = ast.unparse(node)
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        call, target = node.value, node.targets[0]
        if last_name(call.func) != "train_test_split" or len(call.args) != 1 or not isinstance(target, ast.Tuple):
            continue
        given = {one.arg: ast.unparse(one.value) for one in call.keywords}
        seed = "in order" if given.get("shuffle") == "False" else given.get("random_state", "")
        seed = seeded if seed in ("", "None") else seed
        seeded = ""
        if len(target.elts) == PARTS and dotted(call.args[0]):
            found.append(_Split(dotted(call.args[0]), seed, tuple(map(dotted, target.elts)), node.lineno))
    return found


def _pairs(node: ast.AST, pairs: set[tuple[str, str]]) -> bool:
    """Whether a call pairs results that stand at the same place of the two splits."""
    if not isinstance(node, ast.Call) or not PAIRS.fullmatch(last_name(node.func)):
        return False
    given = [names_read(one) for one in node.args]
    return any(
        one in first and other in second
        for one, other in pairs
        for first in given
        for second in given
        if first != second
    )
