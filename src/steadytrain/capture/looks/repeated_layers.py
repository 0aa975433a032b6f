"""Finds a list that holds one layer many times: ``[nn.Linear(64, 64)] * 3``, ``[layer for _ in range(3)]``.

The layer has parameters: it is one of ``torch.nn``, or of a class of the module that makes such a part. Names that say
that weights are shared are left alone, and so is a list of one.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from steadytrain.capture.looks.syntax_trees import last_name, names_stored, scopes, statements, walk

LAYER = re.compile(
    r"(Lazy)?(Linear|Bilinear|Conv(Transpose)?[123]d|(Batch|Instance)Norm[123]d|(Group|Layer|RMS|SyncBatch)Norm|Embedding"
    r"|EmbeddingBag|(RNN|LSTM|GRU)(Cell)?|MultiheadAttention|Transformer(Encoder|Decoder)?(Layer)?)"
)
MEANT = re.compile(
    r"(?i)shar|(?<![a-z])tie|tying|univers|recurr|repeat|reus|albert|same|loop|unroll|iterat|weight_?t|siam"
)
HOLDERS = ("ModuleList", "Sequential")


def repeated_layers(tree: ast.Module) -> Iterator[int]:
    """The line of the list."""
    classes = _with_parameters(tree)
    meant = {id(one) for each in _meant(tree) for one in walk(each)}
    for scope in scopes(tree):
        nodes = list(statements(scope))
        made: dict[str, bool] = {}
        for assigned in (one for one in nodes if isinstance(one, ast.Assign)):
            for name in (one.id for one in assigned.targets if isinstance(one, ast.Name)):
                made[name] = made.get(name, True) and _is_layer(assigned.value, classes)
        layers = {name for name, is_layer in made.items() if is_layer}
        for node in nodes:
            if id(node) in meant:
                continue
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
                for listed, count in ((node.left, node.right), (node.right, node.left)):
                    one = isinstance(count, ast.Constant) and count.value in (0, 1)
                    held = listed.elts if isinstance(listed, ast.List) and not one else []
                    if any(_is_layer(each, classes) for each in held):
                        yield node.lineno
            elif isinstance(node, ast.Call) and last_name(node.func) in HOLDERS:
                yield from (one.lineno for one in node.args if _repeats(one, layers))


def _repeats(value: ast.expr, layers: set[str]) -> bool:
    """``[layer for _ in range(n)]`` and ``[layer] * n`` of one variable that is a layer."""
    value = value.value if isinstance(value, ast.Starred) else value
    if isinstance(value, (ast.ListComp, ast.GeneratorExp)):
        drawn = {name for one in value.generators for name in names_stored(one.target)}
        return isinstance(value.elt, ast.Name) and value.elt.id in layers - drawn
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult):
        listed = [one for one in (value.left, value.right) if isinstance(one, ast.List)]
        return any(isinstance(one, ast.Name) and one.id in layers for each in listed for one in each.elts)
    return False


def _is_layer(value: ast.expr, classes: set[str]) -> bool:
    if not isinstance(value, ast.Call):
        return False
    name = last_name(value.func)
    if name == "Sequential":
        return any(_is_layer(one, classes) for one in value.args)
    known = isinstance(value.func, (ast.Name, ast.Attribute)) and LAYER.fullmatch(name) is not None
    return known or name in classes


def _with_parameters(tree: ast.Module) -> set[str]:
    """Classes of modules in ``tree`` that have parameters, their own or of a part."""
    classes = [one for one in walk(tree) if isinstance(one, ast.ClassDef)]
    found: set[str] = set()
    for _ in range(3):  # a block of blocks of layers
        for one in classes:
            bases = {last_name(base) for base in one.bases}
            calls = [each for each in walk(one) if isinstance(each, ast.Call)]
            if (bases & {"Module", "Sequential"} or bases & found) and any(
                last_name(each.func) == "Parameter" or _is_layer(each, found) for each in calls
            ):
                found.add(one.name)
    return found


def _meant(tree: ast.Module) -> Iterator[ast.AST]:
    """Statements and classes whose names say that the layer is shared."""
    for node in walk(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and MEANT.search(node.name):
            yield node
        elif isinstance(node, ast.If) and any(MEANT.search(word) for word in _words(node.test)):
            yield from node.body
        elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.Return, ast.Expr)) and any(
            MEANT.search(word) for word in _words(node)
        ):
            yield node


def _words(node: ast.AST) -> set[str]:
    return {last_name(one) for one in walk(node) if isinstance(one, (ast.Name, ast.Attribute))}
