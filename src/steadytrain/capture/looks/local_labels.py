"""Finds labels of a contrastive loss that leave out the rank: ``arange(rows)`` for rows against those of all ranks.

Row ``i`` of rank ``r`` belongs to row ``r * rows + i`` of what was gathered. Without that offset the first ranks' rows
are taken for its partners.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from steadytrain.capture.looks.syntax_trees import (
    Scope,
    argument_names,
    assignments,
    dotted,
    given_values,
    last_name,
    names_read,
    scopes,
    statements,
    walk,
)

GATHERED = re.compile(r"(?i)(.*_)?(all|gathered|global|world|everyone|full)(_.*)?")
GATHERS = re.compile(r"(?i)\w*all_?gather\w*|gather(_\w+)?|\w+_gather")
RANK = re.compile(r"(?i)(.*_)?rank(_id)?|process_index|shard(_id|_index)?|replica(_id)?|get_rank|worker(_id)?")
LOSSES = ("cross_entropy", "CrossEntropyLoss", "nll_loss")
PRODUCTS = ("matmul", "mm", "einsum", "linear")


def local_labels(tree: ast.Module) -> Iterator[int]:
    """The lines of such labels."""
    for scope in scopes(tree):
        gathered = _gathered(scope)
        if not gathered and not any(RANK.fullmatch(name) for name in _names(scope)):
            continue
        labels, products = _aranges(scope), _products(scope, gathered)
        used = {
            node.args[1].id
            for node in statements(scope)
            if isinstance(node, ast.Call)
            and _is_loss(node)
            and len(node.args) >= 2
            and isinstance(node.args[1], ast.Name)
            if any(_products_in(node.args[0], products, gathered))
        }
        yield from sorted({labels[target] for target in used if target in labels})


def _names(scope: Scope) -> set[str]:
    """The names that a scope reads, those of attributes and arguments among them."""
    nodes = (one for one in statements(scope) if isinstance(one, (ast.Name, ast.Attribute)))
    return argument_names(scope) | {last_name(one) for one in nodes}


def _gathered(scope: Scope) -> set[str]:
    """The variables that hold what a function with ``gather`` in its name returned."""
    return {
        target.id
        for target, value in assignments(statements(scope))
        if isinstance(target, ast.Name) and isinstance(value, ast.Call)
        if GATHERS.fullmatch(last_name(_inner(value).func))
    }


def _is_loss(node: ast.Call) -> bool:
    name = last_name(node.func.func if isinstance(node.func, ast.Call) else node.func)
    return name in LOSSES or name in ("criterion", "loss_fn", "ce", "xent")


def _aranges(scope: Scope) -> dict[str, int]:
    """The labels that are numbers from 0 on, and to which nothing of the rank is added."""
    found: dict[str, int] = {}
    moved: set[str] = set()
    for node in statements(scope):
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            moved.add(node.target.id)
        if not isinstance(node, ast.Assign):
            continue
        for target, value in given_values(node):
            if not isinstance(target, ast.Name):
                continue
            if (
                isinstance(value, ast.Call)
                and last_name(_inner(value).func) == "arange"
                and len(_inner(value).args) == 1
            ):
                found[target.id] = node.lineno
            else:
                moved.add(target.id)
    return {name: line for name, line in found.items() if name not in moved}


def _inner(call: ast.Call) -> ast.Call:
    """``torch.arange(n)`` of ``torch.arange(n).to(device)``."""
    while isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Call):
        call = call.func.value
    return call


def _products(scope: Scope, gathered: set[str]) -> set[str]:
    return {
        target.id
        for target, value in assignments(statements(scope))
        if isinstance(target, ast.Name) and _is_product(value, gathered)
    }


def _products_in(node: ast.expr, products: set[str], gathered: set[str]) -> Iterator[bool]:
    yield _is_product(node, gathered)
    yield bool(names_read(node) & products)


def _is_product(value: ast.expr, gathered: set[str]) -> bool:
    """Whether rows of one rank are multiplied with rows of all."""
    for node in walk(value):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            sides = [node.left, node.right]
        elif isinstance(node, ast.Call) and last_name(node.func) in PRODUCTS and len(node.args) >= 2:
            last = node.args[-1]
            sides = list(last.elts) if isinstance(last, (ast.List, ast.Tuple)) else list(node.args[-2:])
        else:
            continue
        if len(sides) == 2 and not _is_gathered(sides[0], gathered) and _is_gathered(sides[1], gathered):
            return True
    return False


def _is_gathered(side: ast.expr, gathered: set[str]) -> bool:
    names = {last_name(one) for one in walk(side) if isinstance(one, (ast.Name, ast.Attribute)) and dotted(one)}
    return any(name in gathered or GATHERED.fullmatch(name) for name in names)
