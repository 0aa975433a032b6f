"""Finds a loss over all nodes of a graph where the file has a mask of those to test on: ``criterion(out, data.y)``.

Both arguments are whole variables, the function updates the weights, and elsewhere in the file the same labels are
indexed by a mask or an index of test.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from steadytrain.capture.looks.syntax_trees import Scope, dotted, last_name, names_stored, scopes, statements, walk

LOSSES = re.compile(
    r"(?i)cross_entropy|nll_loss|binary_cross_entropy(_with_logits)?|criterion|loss_fn|loss_func\w*|mse_loss"
)
TEST = re.compile(
    r"(?i)(.*_)?(test|val)_?(mask|idx|index|ids|nodes)|(mask|idx|index|ids)_(test|val)|test_?mask|idx_?test"
)
PART = re.compile(r"(?i)mask|(?<!edge_)(idx|index)\b|subgraph|sample|batch|loader|\[")
NAMED = (ast.Name, ast.Attribute)


def unmasked_nodes(tree: ast.Module) -> Iterator[int]:
    """The line of the loss."""
    tested = {
        dotted(one.value).rpartition(".")[2]
        for one in walk(tree)
        if isinstance(one, ast.Subscript) and TEST.fullmatch(last_name(one.slice))
    } - {""}
    for scope in scopes(tree):
        nodes = list(statements(scope))
        if not any(isinstance(one, ast.Call) and last_name(one.func) == "backward" for one in nodes):
            continue
        masked = _masked(scope)
        for node in nodes:
            if not isinstance(node, ast.Call) or not LOSSES.fullmatch(last_name(node.func)) or len(node.args) < 2:
                continue
            options = {one.arg for one in node.keywords}
            names = [dotted(one) for one in node.args[:2]]
            whole = all(names) and "weight" not in options and "reduction" not in options
            if whole and last_name(node.args[1]) in tested and not set(names) & masked:
                yield node.lineno


def _masked(scope: Scope) -> set[str]:
    """Variables that an index, a mask or a loop makes."""
    found: set[str] = set()
    for node in statements(scope):
        if isinstance(node, ast.Assign) and PART.search(ast.unparse(node.value)):
            found |= {dotted(one) for target in node.targets for one in walk(target) if isinstance(one, NAMED)}
        if isinstance(node, (ast.For, ast.AsyncFor)):
            names = names_stored(node.target)
            found |= names | {f"{one}.y" for one in names}
    return found
