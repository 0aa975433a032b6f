"""Finds positions that are counted along the batch: ``x + self.pe[: x.size(0)]`` where the batch comes first."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from steadytrain.capture.looks.syntax_trees import dotted, last_name, statements, walk

TABLE = re.compile(r"(?i)(.*_)?(pe|pos\w*|encoding\w*|wpe)")
PLACES_FIRST = re.compile(
    r"(transpose\(\s*0\s*,\s*1\s*\)|transpose\(\s*1\s*,\s*0\s*\)|permute\(\s*1\s*,\s*0\b|\.t\(\))"
)


def row_positions(tree: ast.Module) -> Iterator[int]:
    """The line where a table of positions is cut to the size of the first axis of its input.

    Only where a layer of the script is made with ``batch_first=True``, and no axes are exchanged.
    """
    if not _is_batch_first(tree) or PLACES_FIRST.search(ast.unparse(tree)):
        return
    for node in walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name in ("forward", "__call__", "encode", "embed"):
            yield from _in_forward(node)


def _is_batch_first(tree: ast.Module) -> bool:
    return any(
        isinstance(node, ast.keyword)
        and node.arg == "batch_first"
        and isinstance(node.value, ast.Constant)
        and node.value.value is True
        for node in walk(tree)
    )


def _in_forward(function: ast.FunctionDef) -> Iterator[int]:
    arguments = [one.arg for one in function.args.args if one.arg != "self"]
    given = arguments[0] if arguments else ""
    sizes = {name for node in statements(function) for name in _first_sizes(node)}
    inputs = {given} | {
        target.id
        for node in statements(function)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and last_name(target) in ("x", "h", "emb", "embedded", "hidden")
    }
    for node in statements(function):
        if isinstance(node, ast.Subscript) and TABLE.fullmatch(last_name(node.value)):
            cut = node.slice
            if isinstance(cut, ast.Tuple) and cut.elts:
                cut = cut.elts[0]
            upper = cut.upper if isinstance(cut, ast.Slice) and cut.lower is None else None
            if upper is not None and _is_first_size(upper, inputs, sizes):
                yield node.lineno
        if isinstance(node, ast.Call) and TABLE.fullmatch(last_name(node.func)):
            counted = [one for each in node.args for one in walk(each) if _is_arange(one)]
            if any(_is_first_size(one.args[0], inputs, sizes) for one in counted if isinstance(one, ast.Call)):
                yield node.lineno


def _is_arange(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and last_name(node.func) == "arange" and len(node.args) == 1


def _is_first_size(value: ast.expr, inputs: set[str], sizes: set[str]) -> bool:
    """``x.size(0)``, ``x.shape[0]``, ``len(x)``, or a variable that holds one of these."""
    if isinstance(value, ast.Name):
        return value.id in sizes
    if isinstance(value, ast.Call):
        arguments = [one.value if isinstance(one, ast.Constant) else None for one in value.args]
        if last_name(value.func) == "size" and arguments == [0] and isinstance(value.func, ast.Attribute):
            return dotted(value.func.value) in inputs
        return last_name(value.func) == "len" and len(value.args) == 1 and dotted(value.args[0]) in inputs
    if (
        isinstance(value, ast.Subscript)
        and last_name(value.value) == "shape"
        and isinstance(value.value, ast.Attribute)
    ):
        first = isinstance(value.slice, ast.Constant) and value.slice.value == 0
        return first and dotted(value.value.value) in inputs
    return False


def _first_sizes(node: ast.AST) -> Iterator[str]:
    """Variables that hold the size of the first axis: ``n = x.size(0)``, ``n, t = x.shape``."""
    if not isinstance(node, ast.Assign):
        return
    for target in node.targets:
        if isinstance(target, ast.Name) and _is_first_size(node.value, {"x", "src", "ids", "tokens", "inputs"}, set()):
            yield target.id
        of_shape = isinstance(node.value, ast.Attribute) and node.value.attr == "shape"
        of_size = isinstance(node.value, ast.Call) and last_name(node.value.func) == "size" and not node.value.args
        first = target.elts[0] if isinstance(target, ast.Tuple) and target.elts else None
        if isinstance(first, ast.Name) and (of_shape or of_size):
            yield first.id
