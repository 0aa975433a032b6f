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
    dotted,
    given_values,
    last_name,
    names_called,
    names_read,
    scopes,
    statements,
    walk,
)

GATHERED = re.compile(r"(?i)(.*_)?(all|gathered|global|world|everyone|full)(_.*)?")
RANK = re.compile(r"(?i)(.*_)?rank(_id)?|process_index|shard(_id|_index)?|replica(_id)?|get_rank|worker(_id)?")
LOSSES = ("cross_entropy", "CrossEntropyLoss", "nll_loss")
PRODUCTS = ("matmul", "mm", "einsum", "linear")


def local_labels(tree: ast.Module) -> Iterator[int]:
    """The lines of such labels."""
    for scope in scopes(tree):
        if not any(RANK.fullmatch(name) for name in _names(scope)):
            continue
        labels, products = _aranges(scope), _products(scope)
        used = {
            (logits, target)
            for node in statements(scope)
            if isinstance(node, ast.Call) and _is_loss(node) and len(node.args) >= 2
            for logits in _products_in(node.args[0], products)
            for target in names_read(node.args[1])
        }
        yield from sorted({labels[target] for _, target in used if target in labels})


def _names(scope: Scope) -> set[str]:
    read = {name for one in statements(scope) for name in names_read(one)} | argument_names(scope)
    read |= {one.attr for each in statements(scope) for one in walk(each) if isinstance(one, ast.Attribute)}
    return read | {name for one in statements(scope) for name in names_called(one)}


def _is_loss(node: ast.Call) -> bool:
    name = last_name(node.func)
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


def _products(scope: Scope) -> dict[str, ast.expr]:
    return {
        target.id: value
        for node in statements(scope)
        if isinstance(node, ast.Assign)
        for target, value in given_values(node)
        if isinstance(target, ast.Name) and _is_product(value)
    }


def _products_in(node: ast.expr, products: dict[str, ast.expr]) -> Iterator[ast.expr]:
    if _is_product(node):
        yield node
    for name in names_read(node):
        if name in products:
            yield products[name]


def _is_product(value: ast.expr) -> bool:
    """Whether rows of one rank are multiplied with rows of all."""
    for node in walk(value):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            sides = [node.left, node.right]
        elif isinstance(node, ast.Call) and last_name(node.func) in PRODUCTS and len(node.args) >= 2:
            sides = list(node.args[-2:])
        else:
            continue
        if not _is_gathered(sides[0]) and _is_gathered(sides[1]):
            return True
    return False


def _is_gathered(side: ast.expr) -> bool:
    names = {last_name(one) for one in walk(side) if isinstance(one, (ast.Name, ast.Attribute)) and dotted(one)}
    return any(GATHERED.fullmatch(name) for name in names)
