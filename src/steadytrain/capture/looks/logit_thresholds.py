"""Finds logits that are compared with 0.5: ``BCEWithLogitsLoss`` for the loss, ``out > 0.5`` for the prediction.

The variable is the first argument of the loss in the same function; or it is the output of the trained model in another
function of a file that has no other loss of probabilities and nowhere a sigmoid.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from steadytrain.capture.looks.syntax_trees import dotted, last_name, names_read, scopes, statements, walk

LOSS, FUNCTION = "BCEWithLogitsLoss", "binary_cross_entropy_with_logits"
THRESHOLD = 0.5
SQUASHES = re.compile(r"(?i)sigmoid|expit|softmax|prob|exp\(|BCELoss|binary_cross_entropy\(")
SAME = ("squeeze", "view", "reshape", "flatten", "detach", "cpu", "numpy", "float", "ravel", "unsqueeze", "data")
ASIDE = ("parameters", "train", "eval", "state_dict")


def logit_thresholds(tree: ast.Module) -> Iterator[int]:
    """The line of the comparison."""
    criteria = {name for name, value in _assigned(walk(tree)) if _is_call_of(value, LOSS)}
    if any(_squashes_output(one) for one in walk(tree)):
        return
    alone = not any(SQUASHES.search(word) for word in _words(tree))
    models = {
        dotted(one.func.value)
        for one in walk(tree)
        if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and one.func.attr in ASIDE
    } - {""}
    for scope in scopes(tree):
        nodes = list(statements(scope))
        made: dict[str, list[ast.expr]] = {}
        for name, value in _assigned(nodes):
            made.setdefault(name, []).append(value)
        losses = [one for one in nodes if isinstance(one, ast.Call) and _is_loss(one, criteria)]
        logits = {_core(one.args[0]) for one in losses if one.args}
        if alone and criteria:
            logits |= {name for name, values in made.items() if all(_is_output(one, models) for one in values)}
        renamed = {
            name
            for name, values in made.items()
            if all(isinstance(one, ast.Name) and one.id in logits for one in values)
        }
        logits = {
            name
            for name in (logits | renamed) - {""}
            if made.get(name) and not any(SQUASHES.search(ast.unparse(one)) for one in made[name])
        }
        yield from (one.lineno for one in nodes if isinstance(one, ast.expr) and _halved(one) in logits)


def _halved(node: ast.expr) -> str:
    """The variable that is compared with 0.5 or rounded, "" of all else."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], (ast.Gt, ast.GtE)):
        bound = node.comparators[0]
        return _core(node.left) if isinstance(bound, ast.Constant) and bound.value == THRESHOLD else ""
    if isinstance(node, ast.Call) and last_name(node.func) in ("round", "gt", "ge"):
        of_module = isinstance(node.func, ast.Name) or dotted(node.func) in ("torch.round", "torch.gt", "torch.ge")
        held = [*node.args] if of_module else [node.func.value, *node.args]  # type: ignore[attr-defined]
        half = len(held) == 2 and isinstance(held[1], ast.Constant) and held[1].value == THRESHOLD
        rounds = len(held) == 1 and last_name(node.func) == "round"
        return _core(held[0]) if half or rounds else ""
    return ""


def _core(value: ast.expr) -> str:
    """``out`` of ``out.squeeze(1).detach()``."""
    while True:
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in SAME:
            value = value.func.value
        elif (isinstance(value, ast.Attribute) and value.attr in SAME) or isinstance(value, ast.Subscript):
            value = value.value
        else:
            return value.id if isinstance(value, ast.Name) else ""


def _is_output(value: ast.expr, models: set[str]) -> bool:
    """Whether ``value`` is what a model returns, or a view of it."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in SAME:
        value = value.func.value
    return isinstance(value, ast.Call) and dotted(value.func) in models and bool(value.args)


def _is_loss(call: ast.Call, criteria: set[str]) -> bool:
    made_here = isinstance(call.func, ast.Call) and _is_call_of(call.func, LOSS)
    return last_name(call.func) == FUNCTION or dotted(call.func) in criteria or made_here


def _is_call_of(value: ast.expr, name: str) -> bool:
    return isinstance(value, ast.Call) and last_name(value.func) == name


def _squashes_output(node: ast.AST) -> bool:
    """Whether a ``forward`` squashes anything: in evaluation it may return probabilities."""
    named = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name in ("forward", "predict")
    return named and re.search(r"(?i)sigmoid|expit", ast.unparse(node)) is not None


def _words(tree: ast.Module) -> set[str]:
    attributes = {one.attr for one in walk(tree) if isinstance(one, ast.Attribute)}
    return names_read(tree) | attributes


def _assigned(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    """Variables and attributes, each with what it is assigned."""
    for node in nodes:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                for one in target.elts if isinstance(target, ast.Tuple) else [target]:
                    if dotted(one):
                        yield dotted(one), node.value
