"""Finds a reference or target model that is another name of the trained one: ``ref_model = policy``.

Asked for are the name of a reference, the plain name of a model whose parameters an optimizer gets, and a use without
gradients. A name that is assigned anything else as well, or is unwrapped from a wrapper, is no alias; nor is it where
the model gets a name for the other side beside it (``student = model``): two passes of one model are meant.
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
OTHER_SIDE = re.compile(r"(?i)_?(student|online)(_?\w+)?")
NO_GRAPH = re.compile(r"no_grad|inference_mode")


def aliased_references(tree: ast.Module) -> Iterator[int]:
    """The line of the assignment."""
    trained = {
        last_name(node.func.value)
        for node in walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "parameters"
    }
    assigned: dict[str, list[ast.Assign]] = {}
    for node in walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                assigned.setdefault(last_name(target), []).append(node)
    sides = [one for name, made in assigned.items() if OTHER_SIDE.fullmatch(name) for one in made]
    aside = set(_used_without_graph(tree))
    for name, made in assigned.items():
        values = [_plain(one.value) for one in made]
        if not REFERENCE.fullmatch(name) or name not in aside or not all(values) or name in trained:
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
