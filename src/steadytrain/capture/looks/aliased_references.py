"""Finds a reference or target model that is another name of the trained one: ``ref_model = policy``.

Asked for are the name of a reference, the plain name of a model whose parameters an optimizer gets, and a use without
gradients. A name that the same function assigns anything else, or is unwrapped from a wrapper, is no alias; nor is it
where the model gets a name for the other side beside it (``student = model``): two passes of one model are meant.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from steadytrain.capture.looks.syntax_trees import last_name, walk

REFERENCE = re.compile(
    r"(?i)_?((ref|reference|target|tgt|teacher|frozen|ema|momentum|key)_?(model|net\w*|policy|actor|critic|q\w*|encoder|lm"
    r"|value\w*|critics?)|(model|net|policy|actor|critic|q|q_?net\w*|encoder|lm)_?(ref|reference|target|tgt|teacher|ema|k)"
    r"|reference|teacher)"
)
OPTIMIZERS = re.compile(r"(?i)\w*(adam|sgd|rms|lion|lamb|adafactor|adagrad|muon|optim)\w*")
OTHER_SIDE = re.compile(r"(?i)_?(student|online)(_?\w+)?")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
NO_GRAPH = re.compile(r"no_grad|inference_mode")


def aliased_references(tree: ast.Module) -> Iterator[int]:
    """The line of the assignment."""
    trained = {
        last_name(node.func.value)
        for node in walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "parameters"
    }
    optimized = {
        last_name(inner.func.value)
        for node in walk(tree)
        if isinstance(node, ast.Call) and OPTIMIZERS.fullmatch(last_name(node.func))
        for inner in walk(node)
        if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr == "parameters"
    }
    scopes = {id(part): id(one) for one in walk(tree) if isinstance(one, FUNCTIONS) for part in walk(one)}
    assigned: dict[tuple[str, int], list[ast.Assign]] = {}
    for node in walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                assigned.setdefault((last_name(target), scopes.get(id(node), 0)), []).append(node)
    sides = [one for (name, _), made in assigned.items() if OTHER_SIDE.fullmatch(name) for one in made]
    aside = set(_used_without_graph(tree))
    for (name, _), made in assigned.items():
        values = [_plain(one.value) for one in made]
        if not REFERENCE.fullmatch(name) or name not in aside or not all(values) or name in optimized:
            continue
        for one, value in zip(made, values, strict=True):
            if value in trained and value != name and not any(_plain(other.value) == value for other in sides):
                yield one.lineno


def _plain(value: ast.expr) -> str:
    """The name of a plain variable or attribute, "" of all else."""
    return last_name(value) if isinstance(value, (ast.Name, ast.Attribute)) else ""


def _used_without_graph(tree: ast.Module) -> Iterator[str]:
    """Names that are read under ``no_grad``, or called and detached."""
    for node in walk(tree):
        inside: list[ast.AST] = []
        if (
            isinstance(node, (ast.With, ast.AsyncWith))
            and any(NO_GRAPH.search(ast.unparse(item.context_expr)) for item in node.items)
        ) or (
            isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            and any(NO_GRAPH.search(ast.unparse(one)) for one in node.decorator_list)
        ):
            inside = list(node.body)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "detach":
            inside = [node.func.value]
        for part in inside:
            yield from (last_name(one) for one in walk(part) if isinstance(one, (ast.Name, ast.Attribute)))
