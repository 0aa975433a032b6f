"""Finds batches that are skipped for their gradients before the loss scale can be lowered.

``GradScaler.update`` lowers the scale after an overflow. A ``continue`` between the scaled backward and that call
leaves the scale as it is, so the next batch overflows as well, and is skipped, too.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from steadytrain.capture.looks.syntax_trees import body_of, dotted, last_name, walk

OF_GRADIENTS = re.compile(r"(?i).*(grad|norm|overflow).*")


def kept_scales(tree: ast.Module) -> Iterator[int]:
    """The lines of the conditions that skip."""
    yield from sorted({line for loop in walk(tree) if isinstance(loop, (ast.For, ast.While)) for line in _skips(loop)})


def _skips(loop: ast.For | ast.While) -> Iterator[int]:
    scaled = updated = None
    conditions: list[ast.If] = []
    for node in body_of(loop):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr == "scale" and scaled is None:
                scaled = (dotted(node.func.value), node.lineno)
            elif scaled and node.func.attr == "update" and dotted(node.func.value) == scaled[0]:
                updated = node.lineno
        elif isinstance(node, ast.If) and any(isinstance(one, ast.Continue) for one in node.body):
            conditions.append(node)
    if scaled is None or updated is None or not scaled[0]:
        return
    for one in conditions:
        names = {last_name(each) for each in walk(one.test) if isinstance(each, (ast.Name, ast.Attribute))}
        if (
            scaled[1] < one.lineno < updated
            and any(OF_GRADIENTS.fullmatch(name) for name in names)
            and not any(isinstance(each, ast.Call) and last_name(each.func) == "update" for each in walk(one))
        ):
            yield one.lineno
